package blockdev

import (
	"sync"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// FlushGroup lets flushes that arrive while one is running share the next one. All of them also get its error, which
// the system reports only once.
type FlushGroup struct {
	sync func()
	err  error // of the last sync
	done func(*Request, error)

	mu      sync.Mutex
	running bool
	waiting requestQueue
}

// NewFlushGroup returns a group. sync makes completed writes durable, done completes a request.
func NewFlushGroup(sync func() error, done func(*Request, error)) *FlushGroup {
	g := &FlushGroup{done: done}
	g.sync = func() { g.err = sync() }
	return g
}

// Lead returns true if the caller must call Run with r; otherwise r has joined those that the sync after the running
// one will answer.
func (g *FlushGroup) Lead(r *Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running {
		g.waiting.push(r)
		return false
	}
	g.running = true
	return true
}

// next returns the requests that have gathered, or ends the run if there are none.
func (g *FlushGroup) next() requestQueue {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = !g.waiting.empty()
	return g.waiting.take()
}

// Run answers r, the leader, and all that arrive meanwhile.
func (g *FlushGroup) Run(r *Request) {
	var answered requestQueue
	for answered.push(r); !answered.empty(); answered = g.next() {
		aio.Apart(g.sync) // those that were answered before may have submitted requests to a ring, on this thread
		for r := answered.pop(); r != nil; r = answered.pop() {
			g.done(r, g.err)
		}
	}
}
