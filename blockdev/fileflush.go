package blockdev

import "sync"

// flushGroup lets the flushes that arrive while one is running share the next one. It also
// has all of them told of an error, which the system reports only once.
type flushGroup struct {
	mu      sync.Mutex
	running bool
	waiting requestQueue
}

// lead returns true where r must run; else it joined those that the running one's successor
// will answer.
func (g *flushGroup) lead(r *Request) bool {
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
func (g *flushGroup) next() *Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.waiting.take()
	g.running = r != nil
	return r
}

// flush makes durable what was completed, for r and those that came meanwhile.
func (v *file) flush(r *Request) {
	for r != nil {
		err := v.explain(r, v.sync())
		for r != nil {
			next := r.next
			r.next = nil
			v.end(r, err)
			r = next
		}
		r = v.flushes.next()
	}
}
