// Package fabrictest has tests for behaviour that both transports share.
package fabrictest

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// AttendedVolume offers its writes to a goroutine on duty (package duty). While hold is not nil, the next write waits
// for it.
type AttendedVolume struct {
	blockdev.Volume
	hold atomic.Pointer[chan struct{}]
	held chan struct{}
}

// NewAttendedVolume returns a volume that executes requests on v.
func NewAttendedVolume(v blockdev.Volume) *AttendedVolume {
	return &AttendedVolume{Volume: v, held: make(chan struct{}, 1)}
}

type attendedWrite struct {
	v *AttendedVolume
	r *blockdev.Request
}

// Submit implements blockdev.Volume.
func (v *AttendedVolume) Submit(r *blockdev.Request) {
	if r.Op != blockdev.OpWrite {
		v.Volume.Submit(r)
		return
	}
	if w := (&attendedWrite{v, r}); !duty.Offer(w) {
		w.Decline()
	}
}

// Do implements duty.Task.
func (w *attendedWrite) Do() {
	if hold := w.v.hold.Swap(nil); hold != nil {
		w.v.held <- struct{}{}
		<-*hold
	}
	w.v.Volume.Submit(w.r)
}

// Decline implements duty.Task.
func (w *attendedWrite) Decline() { go w.v.Volume.Submit(w.r) }

// HeldUp fails t unless a write to v that hangs, and that the goroutine that receives packets executes, stops nothing
// else on the same connection, and completes normally. submit submits a command for some of v's blocks on that
// connection, and has done called with its status.
func HeldUp(t *testing.T, v *AttendedVolume, submit func(op nvme.Opcode, done func(nvme.Status))) {
	t.Helper()
	const most = 64
	statuses := make(chan nvme.Status, most)
	done := func(s nvme.Status) { statuses <- s }
	for range 3 { // one goroutine is replaced, and its successor too
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		t.Cleanup(free) // if the test fails, so that everything can end
		v.hold.Store(&release)
		held := false
		for writes := 0; !held && writes < most; writes++ { // nobody may be on duty, or have time, when the first comes
			submit(nvme.OpWrite, done)
			select {
			case <-v.held:
				held = true
			case s := <-statuses: // of this write: none is left of earlier ones
				if s != nvme.StatusSuccess {
					t.Fatalf("status %v of a write that doesn't hang", s)
				}
			}
		}
		if !held {
			t.Fatal("nobody on duty ever wrote")
		}
		for range 10 {
			submit(nvme.OpRead, done)
		}
		for range 10 {
			if s := <-statuses; s != nvme.StatusSuccess {
				t.Fatalf("status %v beside a write that hangs", s)
			}
		}
		if len(statuses) != 0 {
			t.Fatal("a write that hangs was answered")
		}
		free()
		if s := <-statuses; s != nvme.StatusSuccess {
			t.Errorf("the write that hung ended with status %v", s)
		}
	}
}
