package rdma_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
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

// TestHeldUp: a write that the goroutine that receives packets executes for a volume, and that hangs, stops nothing
// else on the same connection, and completes normally.
func TestHeldUp(t *testing.T) {
	v := &attendedVolume{Volume: memory(t, 16<<20), held: make(chan struct{}, 1)}
	r := newRig(t, rdma.TargetConfig{}, v)
	c := r.connect(t, nil)
	b, err := c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	const most = 64
	done := make(chan nvme.Status, most)
	submit := func(op nvme.Opcode) {
		req := &host.Request{Data: b, Done: func(r *host.Request) { done <- r.CQE.Status() }}
		req.Cmd.SetIO(op, 1, 0, 8, 0)
		c.Queues()[0].SubmitOne(req)
	}
	for range 3 { // one goroutine is replaced, and its successor too
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free() // if the test fails, so that everything can end
		v.hold.Store(&release)
		held := false
		for writes := 0; !held && writes < most; writes++ { // nobody may be on duty when the first comes
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
	c.Free(b)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
