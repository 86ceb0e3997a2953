package tcp

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// attendedVolume offers its writes to a goroutine on duty (package duty). While hold is not nil, the next write waits
// for it.
type attendedVolume struct {
	blockdev.Volume
	hold atomic.Pointer[chan struct{}]
	held chan struct{}
}

type attendedWrite struct {
	v *attendedVolume
	r *blockdev.Request
}

func (v *attendedVolume) Submit(r *blockdev.Request) {
	if r.Op != blockdev.OpWrite {
		v.Volume.Submit(r)
		return
	}
	if w := (&attendedWrite{v, r}); !duty.Offer(w) {
		w.Decline()
	}
}

func (w *attendedWrite) Do() {
	if hold := w.v.hold.Swap(nil); hold != nil {
		w.v.held <- struct{}{}
		<-*hold
	}
	w.v.Volume.Submit(w.r)
}

func (w *attendedWrite) Decline() { go w.v.Volume.Submit(w.r) }

// TestHeldUp: a write that a connection's reader executes for a volume, and that hangs, stops nothing else on that
// connection, and completes normally.
func TestHeldUp(t *testing.T) {
	memory, err := blockdev.NewMemory(blockdev.Options{Size: testSize, BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	v := &attendedVolume{Volume: memory, held: make(chan struct{}, 1)}
	p := newPair(t, newTestTargetOn(t, TargetConfig{}, v).Addr(), clientOptions{inCapsule: 4096})
	const most = 64
	done := make(chan nvme.Status, most)
	submit := func(op nvme.Opcode) {
		p.io.submit(&host.Request{Cmd: ioCommand(op, 0, 4096), Data: make([]byte, 4096), Done: func(r *host.Request) {
			done <- r.CQE.Status()
		}})
	}
	for range 3 { // one goroutine is replaced, and its successor too
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free() // if the test fails, so that everything can end
		v.hold.Store(&release)
		held := false
		for writes := 0; !held && writes < most; writes++ { // those on duty may have no time for the first
			submit(nvme.OpWrite)
			select {
			case <-v.held:
				held = true
			case s := <-done: // from this write: none is left from earlier ones
				if s != nvme.StatusSuccess {
					t.Fatalf("status %v of a write that doesn't hang", s)
				}
			}
		}
		if !held {
			t.Fatal("nobody on duty ever wrote")
		}
		for range 10 {
			submit(nvme.OpRead)
		}
		for range 10 {
			if s := <-done; s != nvme.StatusSuccess {
				t.Fatalf("status %v beside a write that hangs", s)
			}
		}
		if len(done) != 0 {
			t.Fatal("a write that hangs was answered")
		}
		free()
		if s := <-done; s != nvme.StatusSuccess {
			t.Errorf("the write that hung ended with status %v", s)
		}
	}
}
