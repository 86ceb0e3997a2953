package blockdev

import "sync"

// FlushGroup lets flushes that arrive while one is running share the next one. All of them also get its error, which
// the system reports only once.
type FlushGroup struct {
	mu      sync.Mutex
	running bool
	waiting requestQueue
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

// Run answers r, the leader, and all that arrive meanwhile: sync makes completed writes durable, done completes a
// request.
func (g *FlushGroup) Run(r *Request, sync func() error, done func(*Request, error)) {
	var answered requestQueue
	for answered.push(r); !answered.empty(); answered = g.next() {
		err := sync()
		for r := answered.pop(); r != nil; r = answered.pop() {
			done(r, err)
		}
	}
}
