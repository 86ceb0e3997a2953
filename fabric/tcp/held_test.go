package tcp

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fabrictest"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestHeldUp: a write that a connection's reader executes for a volume, and that hangs, stops nothing else on that
// connection, and completes normally.
func TestHeldUp(t *testing.T) {
	memory := newTestVolume(t)
	v := fabrictest.NewAttendedVolume(memory)
	p := newPair(t, newTestTargetOn(t, TargetConfig{}, v).Addr(), clientOptions{inCapsule: 4096})
	fabrictest.HeldUp(t, v, func(op nvme.Opcode, done func(nvme.Status)) {
		p.io.submit(&host.Request{Cmd: ioCommand(op, 0, 4096), Data: make([]byte, 4096), Done: func(r *host.Request) {
			done(r.CQE.Status())
		}})
	})
}
