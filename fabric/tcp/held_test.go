package tcp

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
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

// holding is a volume that passes its writes on when it is told to.
type holding struct {
	blockdev.Volume
	held chan *blockdev.Request
}

func (v *holding) Submit(r *blockdev.Request) {
	if r.Op == blockdev.OpWrite {
		v.held <- r
		return
	}
	v.Volume.Submit(r)
}

// TestHeldAtTheEnd: a volume that still has a write when its connection ends finds the data, which came in the capsule,
// in its place. What is left of the connection goes when the volume is done.
func TestHeldAtTheEnd(t *testing.T) {
	virtually(t, func(t *testing.T, n socket.Network) {
		memory := newTestVolume(t)
		v := &holding{memory, make(chan *blockdev.Request, 1)}
		tt := newTestTargetOn(t, TargetConfig{BusyPoll: NoBusyPoll, Network: n}, v)
		_, p := rawIO(t, tt, another, 8)
		cmd, data := ioCommand(nvme.OpWrite, 0, block), randomBytes(1, block)
		cmd.SGL1().SetBlock(nvme.SGLInCapsule, 0, block)
		p.send(p.capsule(cmd, data))
		r := <-v.held
		_ = p.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := tt.Counters().Connections.Load(); n != 2 {
			t.Errorf("%d connections, want 2: the volume still has a request of one that ended", n)
		}
		if !bytes.Equal(bytes.Join(r.Bufs, nil), data) {
			t.Error("the volume sees other data")
		}
		memory.Submit(r)
		synctest.Wait()
		if n := tt.Counters().Connections.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}
