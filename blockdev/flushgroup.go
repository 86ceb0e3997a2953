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
func (g *FlushGroup) next() *Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.waiting.take()
	g.running = r != nil
	return r
}

// Run answers r, which leads, and all that come meanwhile: sync makes durable what was
// completed, done completes a request.
func (g *FlushGroup) Run(r *Request, sync func() error, done func(*Request, error)) {
	for r != nil {
		err := sync()
		for r != nil {
			next := r.next
			r.next = nil
			done(r, err)
			r = next
		}
		r = g.next()
	}
}
