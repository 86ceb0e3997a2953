package tests

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// endless is a task of which something is always left. At the end it isn't offered.
type endless struct {
	done    atomic.Int64
	offered atomic.Bool
	stopped atomic.Bool
}

func (e *endless) begin() {
	if !e.offered.Swap(true) {
		e.offer()
	}
}

func (e *endless) offer() {
	if e.stopped.Load() || !duty.Offer(e) {
		e.offered.Store(false)
	}
}

// Do is duty.Task's.
func (e *endless) Do() {
	e.done.Add(1)
	e.offer()
}

// Decline is duty.Task's.
func (e *endless) Decline() { e.offered.Store(false) }

// TestEndlessErrand: whoever receives packets does so between what it does for others, and so answers commands though
// there is always something to do.
func TestEndlessErrand(t *testing.T) {
	alone(t)
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("with one processor nobody is on duty while a test runs, who could be offered something")
	}
	remote := servePair(t, "mem:16MiB", blockdev.Options{})
	for _, path := range localPaths {
		t.Run(path, func(t *testing.T) {
			h := dialPair(t, remote, path)
			defer h.close(t)
			ns, err := h.Namespace(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var e endless
			defer func() { e.stopped.Store(true) }()
			b := make([]byte, 4096)
			const reads, errands = 200, 2000
			for i := 0; i < reads || e.done.Load() < errands; i++ {
				e.begin() // anew where nobody was on duty
				if _, err := ns.ReadAt(ctx, b, int64(i%1024)*4096); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
