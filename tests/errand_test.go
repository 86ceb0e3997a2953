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

// endless is a task that is never finished. At the end it isn't offered again.
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

// Do implements duty.Task.
func (e *endless) Do() {
	e.done.Add(1)
	e.offer()
}

// Decline implements duty.Task.
func (e *endless) Decline() { e.offered.Store(false) }

// TestEndlessErrand: a goroutine that receives packets keeps doing so between tasks of others, and so answers commands
// even if there is always a task.
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
			ns := h.namespace(t, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var e endless
			defer func() { e.stopped.Store(true) }()
			b := make([]byte, 4096)
			const reads, errands = 200, 2000
			for i := 0; i < reads || e.done.Load() < errands; i++ {
				e.begin() // again, if nobody was on duty
				if _, err := ns.ReadAt(ctx, b, int64(i%1024)*4096); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
