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

// adminOpcodes and ioOpcodes are the commands of an I/O controller, for the effects log.
var (
	adminOpcodes = map[nvme.Opcode]nvme.Effects{
		nvme.OpIdentify:    nvme.EffectSupported,
		nvme.OpGetLogPage:  nvme.EffectSupported,
		nvme.OpGetFeatures: nvme.EffectSupported,
		nvme.OpSetFeatures: nvme.EffectSupported,
		nvme.OpKeepAlive:   nvme.EffectSupported,
		nvme.OpAsyncEvent:  nvme.EffectSupported,
		nvme.OpAbort:       nvme.EffectSupported,
		nvme.OpFormat:      nvme.EffectSupported | nvme.EffectContentChange,
		nvme.OpSanitize:    nvme.EffectSupported | nvme.EffectContentChange,
	}
	// managementOpcodes are the commands of a subsystem whose hosts create namespaces.
	managementOpcodes = map[nvme.Opcode]nvme.Effects{
		nvme.OpNSManagement: nvme.EffectSupported | nvme.EffectContentChange | nvme.EffectInventoryChange,
		nvme.OpNSAttachment: nvme.EffectSupported | nvme.EffectInventoryChange,
	}
	ioOpcodes = map[nvme.Opcode]nvme.Effects{
		nvme.OpFlush:              nvme.EffectSupported,
		nvme.OpWrite:              nvme.EffectSupported | nvme.EffectContentChange,
		nvme.OpRead:               nvme.EffectSupported,
		nvme.OpCompare:            nvme.EffectSupported,
		nvme.OpWriteZeroes:        nvme.EffectSupported | nvme.EffectContentChange,
		nvme.OpDSM:                nvme.EffectSupported | nvme.EffectContentChange,
		nvme.OpVerify:             nvme.EffectSupported,
		nvme.OpCopy:               nvme.EffectSupported | nvme.EffectContentChange,
		nvme.OpWriteUncorrectable: nvme.EffectSupported | nvme.EffectContentChange,
		nvme.OpResvRegister:       nvme.EffectSupported,
		nvme.OpResvReport:         nvme.EffectSupported,
		nvme.OpResvAcquire:        nvme.EffectSupported,
		nvme.OpResvRelease:        nvme.EffectSupported,
	}
)
