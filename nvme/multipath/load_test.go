package multipath

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// state returns the state of path i.
func state(s *Subsystem, i int) State { return s.Paths()[i].State }

func mustWrite(t *testing.T, n *Namespace, b byte, off int64) {
	t.Helper()
	if _, err := n.WriteAt(t.Context(), bytes.Repeat([]byte{b}, 8192), off); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func mustRead(t *testing.T, n *Namespace, want byte, off int64) {
	t.Helper()
	p := make([]byte, 8192)
	if _, err := n.ReadAt(t.Context(), p, off); err != nil {
		t.Fatalf("read: %v", err)
	}
	if !bytes.Equal(p, bytes.Repeat([]byte{want}, len(p))) {
		t.Fatalf("read %#x at %d, want %#x", p[0], off, want)
	}
}

// load keeps requests outstanding on two lanes until stop, and counts those that fail.
type load struct {
	done   atomic.Int64
	failed atomic.Int64
	first  atomic.Pointer[error]
	stop   atomic.Bool
	left   chan struct{}
}

func startLoad(n *Namespace) *load {
	l := &load{left: make(chan struct{}, 8)}
	for i := range 8 {
		r := &host.Request{Data: make([]byte, n.BlockSize())}
		r.Done = func(r *host.Request) {
			if err := r.Check(); err != nil {
				l.failed.Add(1)
				l.first.CompareAndSwap(nil, &err)
			}
			l.done.Add(1)
			if l.stop.Load() {
				l.left <- struct{}{}
				return
			}
			// Virtual time must pass.
			time.AfterFunc(4*time.Millisecond, func() { l.submit(n, r, i) })
		}
		l.submit(n, r, i)
	}
	return l
}

func (l *load) submit(n *Namespace, r *host.Request, i int) {
	op := nvme.OpRead
	if i%2 == 1 {
		op = nvme.OpWrite
	}
	r.Cmd.SetIO(op, n.ID, uint64(i), 1, 0)
	n.Lane(i % 2).SubmitOne(r)
}

func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop.Store(true)
	for range cap(l.left) {
		<-l.left
	}
	if l.failed.Load() > 0 {
		t.Errorf("%d of %d requests failed: %v", l.failed.Load(), l.done.Load(), *l.first.Load())
	}
}

func readVolume(t *testing.T, v blockdev.Volume, b []byte) {
	t.Helper()
	done := make(chan error, 1)
	v.Submit(&blockdev.Request{Op: blockdev.OpRead, Length: int64(len(b)), Bufs: [][]byte{b}, Complete: func(r *blockdev.Request) { done <- r.Err }})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
