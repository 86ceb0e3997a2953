package wrap_test

import (
	"errors"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// slow is a volume whose requests wait.
type slow struct {
	blockdev.Volume
	came, goOn chan struct{}
}

func (s *slow) Submit(r *blockdev.Request) {
	go func() {
		s.came <- struct{}{}
		<-s.goOn
		s.Volume.Submit(r)
	}()
}

// TestFreezeWhileClosing: a volume that is being closed doesn't freeze any more: Close would wait for ever.
func TestFreezeWhileClosing(t *testing.T) {
	mem, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	below := &slow{Volume: mem, came: make(chan struct{}), goOn: make(chan struct{})}
	f := wrap.NewFreezer(below)
	done, closed := make(chan error, 1), make(chan error, 1)
	submit := func() {
		f.Submit(&blockdev.Request{Op: blockdev.OpRead, Length: 4096, Bufs: [][]byte{make([]byte, 4096)},
			Complete: func(r *blockdev.Request) { done <- r.Err }})
	}
	submit()
	<-below.came
	f.Freeze()
	submit() // which waits, and then is passed on by Close
	go func() { closed <- f.Close() }()
	<-below.came
	f.Freeze()
	if f.Frozen() {
		t.Error("it is frozen while it is being closed")
	}
	close(below.goOn)
	for range 2 {
		if err, came := soon.Receive(done); !came || err != nil {
			t.Errorf("a read: done: %v, with %v", came, err)
		}
	}
	if err, came := soon.Receive(closed); !came || err != nil {
		t.Errorf("closing: done: %v, with %v", came, err)
	}
	if err := f.Close(); !errors.Is(err, blockdev.ErrGone) {
		t.Errorf("closing again: %v", err)
	}
}
