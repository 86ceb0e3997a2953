package target

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// offFCType is the byte of a Fabrics command that holds its type.
const offFCType = 4

// connects reports whether the command is Connect.
func (r *Request) connects() bool {
	return r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCConnect
}

// beforeConnect executes a command on a queue that isn't connected: Connect, or an error.
func (r *Request) beforeConnect() {
	if r.Cmd.Opcode() != nvme.OpFabrics {
		r.fail(nvme.StatusInvalidOpcode, offOpcode)
		return
	}
	if r.Cmd.FCType() != nvme.FCConnect {
		r.fail(nvme.StatusInvalidOpcode, offFCType)
		return
	}
	if !r.mapSGL(nvme.ConnectDataSize) {
		return
	}
	if !r.engine.q.state.CompareAndSwap(queueNew, queueConnecting) {
		r.fail(nvme.StatusCommandSequence, noLoc)
		return
	}
	r.withHostData(nvme.ConnectDataSize, (*Request).connect)
}

// fabrics executes a Fabrics command on a connected queue.
func (r *Request) fabrics() {
	q := r.engine.q
	switch fc := r.Cmd.FCType(); {
	case fc == nvme.FCConnect:
		r.fail(nvme.StatusCommandSequence, offFCType)
	case fc == nvme.FCAuthSend && q.hasAuth():
		r.authSend()
	case fc == nvme.FCAuthReceive && q.hasAuth():
		r.authReceive()
	case fc == nvme.FCDisconnect:
		r.disconnect()
	case fc == nvme.FCPropertyGet && q.qid == 0:
		r.propertyGet()
	case fc == nvme.FCPropertySet && q.qid == 0:
		r.propertySet()
	default: // not supported on this queue, or at all (figure "Fabrics Command Type")
		r.fail(nvme.StatusInvalidField, offFCType)
	}
}

// disconnect executes Disconnect, which ends the I/O queue that carries it: the queue begins no more commands.
func (r *Request) disconnect() {
	switch {
	case r.engine.q.qid == 0:
		r.fail(nvme.StatusInvalidQueueType, offFCType)
	case r.Cmd.CDW10()&0xffff != 0:
		r.fail(nvme.StatusConnectFormat, offCDW10)
	default:
		r.engine.q.state.CompareAndSwap(queueConnected, queueDraining)
		r.deleteQueue(firstLook)
	}
}

// deleteQueue responds to Disconnect when all commands before it are answered: its response has to be the last one of
// the queue ("Disconnect Command and Response"). The connection is closed when the response has been sent. If commands
// are under way it looks again after a pause.
func (r *Request) deleteQueue(pause time.Duration) {
	q := r.engine.q
	switch {
	case q.state.Load() == queueDown:
		r.respond(nvme.StatusAbortSQDeleted)
	case q.underWay() > 1:
		time.AfterFunc(pause, func() { r.deleteQueue(min(2*pause, rarestLook)) })
	default:
		r.engine.hangUp = true
		r.respond(nvme.StatusSuccess)
	}
}
