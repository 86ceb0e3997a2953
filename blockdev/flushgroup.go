package blockdev

import "sync"

// FlushGroup lets the flushes that arrive while one is running share the next one. It also
// has all of them told of an error, which the system reports only once.
type FlushGroup struct {
	mu      sync.Mutex
	running bool
	waiting requestQueue
}

// Lead returns true where r must run; else it joined those that the running one's successor
// will answer.
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

// next gives what has gathered, or ends the run where nothing has.
func (g *FlushGroup) next() requestQueue {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = !g.waiting.empty()
	return g.waiting.take()
}

// Run answers r, which leads, and all that come meanwhile: sync makes durable what was
// completed, done completes a request.
func (g *FlushGroup) Run(r *Request, sync func() error, done func(*Request, error)) {
	var answered requestQueue
	for answered.push(r); !answered.empty(); answered = g.next() {
		err := sync()
		for r := answered.pop(); r != nil; r = answered.pop() {
			done(r, err)
		}
	}
}
