package target

import "github.com/nvme-anywhere/nvmeof/nvme"

// admin executes a command of the admin queue of an enabled controller.
func (r *Request) admin() {
	switch r.Cmd.Opcode() {
	case nvme.OpIdentify:
		r.identify()
	case nvme.OpGetLogPage:
		r.getLogPage()
	case nvme.OpGetFeatures:
		r.getFeatures()
	case nvme.OpSetFeatures:
		r.setFeatures()
	case nvme.OpKeepAlive:
		r.keepAliveCommand()
	case nvme.OpAsyncEvent:
		r.asyncEvent()
	case nvme.OpAbort:
		r.abort()
	case nvme.OpFormat:
		r.adminIO((*Request).format)
	case nvme.OpSanitize:
		r.adminIO((*Request).sanitizeCommand)
	case nvme.OpNSManagement:
		r.adminIO((*Request).namespaceManagement)
	case nvme.OpNSAttachment:
		r.adminIO((*Request).namespaceAttachment)
	default:
		r.fail(nvme.StatusInvalidOpcode, offOpcode)
	}
}

// adminIO executes a command that only I/O controllers have.
func (r *Request) adminIO(execute func(*Request)) {
	if r.engine.q.ctrl.sub.discovery {
		r.fail(nvme.StatusInvalidOpcode, offOpcode)
		return
	}
	if st := r.engine.q.ctrl.sub.sanitizing(); !st.OK() && r.Cmd.Opcode() != nvme.OpSanitize {
		r.respond(st)
		return
	}
	execute(r)
}

// The commands that controllers have, for the effects log, with their effects and scopes.
var (
	// commonOpcodes are the admin commands of every controller.
	commonOpcodes = []nvme.Opcode{
		nvme.OpIdentify, nvme.OpGetLogPage, nvme.OpGetFeatures, nvme.OpSetFeatures, nvme.OpKeepAlive, nvme.OpAsyncEvent,
		nvme.OpAbort,
	}
	// adminOpcodes is what an I/O controller has in addition.
	adminOpcodes = map[nvme.Opcode]nvme.Effects{
		nvme.OpSetFeatures: nvme.EffectScopeNamespace,
		nvme.OpFormat:      nvme.EffectScopeNamespace | nvme.EffectContentChange,
		nvme.OpSanitize:    nvme.EffectScopeSubsystem | nvme.EffectContentChange,
	}
	// managementOpcodes are the commands of a subsystem whose hosts create namespaces.
	managementOpcodes = map[nvme.Opcode]nvme.Effects{
		nvme.OpNSManagement: nvme.EffectScopeSubsystem | nvme.EffectContentChange | nvme.EffectInventoryChange,
		nvme.OpNSAttachment: nvme.EffectScopeNamespace | nvme.EffectScopeController | nvme.EffectInventoryChange,
	}
	// ioOpcodes are the I/O commands.
	ioOpcodes = map[nvme.Opcode]nvme.Effects{
		nvme.OpFlush:              0,
		nvme.OpWrite:              nvme.EffectContentChange,
		nvme.OpRead:               0,
		nvme.OpCompare:            0,
		nvme.OpWriteZeroes:        nvme.EffectContentChange,
		nvme.OpDSM:                nvme.EffectContentChange,
		nvme.OpVerify:             0,
		nvme.OpCopy:               nvme.EffectContentChange,
		nvme.OpWriteUncorrectable: nvme.EffectContentChange,
		nvme.OpResvRegister:       0,
		nvme.OpResvReport:         0,
		nvme.OpResvAcquire:        0,
		nvme.OpResvRelease:        0,
	}
)
