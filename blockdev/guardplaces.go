package blockdev

import "time"

// What a Guard does if stripes can lie in other places.

// patience is how long a writer waits for views, or up to twice as long, before it moves the stripe and goes on: a
// reader at a usual pace is done by then, and nothing has to be copied.
const patience = 100 * time.Millisecond

// moveWithin lets stripes move within p.
func (g *Guard) moveWithin(p *places) {
	g.places = p
	g.patience = time.AfterFunc(time.Hour, g.hurry)
	g.patience.Stop()
}

// stop undoes moveWithin, when nobody reads or writes any more.
func (g *Guard) stop() { g.patience.Stop() }

// replace moves the stripe that begins at off to another place, which has been written already. Its old place becomes
// free when nobody reads it any more.
func (g *Guard) replace(off int64, by place) {
	s := off >> stripeShift
	e := g.entry(s)
	e.mu.Lock()
	was := g.places.move(s, by)
	if e.views > 0 {
		e.replaced = g.places.link(was, e.replaced)
		was = 0
	}
	e.mu.Unlock()
	if was != 0 {
		g.places.give(g.places.link(was, 0))
	}
}

// applyAside applies a piece of r to a copy of its stripe in a free place, and then moves the stripe there: a reader that
// counts as a view already may only now look where it is. It returns false if no place is free. e.mu is held.
func (g *Guard) applyAside(e *guardEntry, r *Request, off, n int64) bool {
	to := g.places.take(1)
	if to == 0 {
		return false
	}
	s, b := off>>stripeShift, g.places.bytes(to)
	if n < stripeSize {
		copy(b, g.places.bytes(g.places.stripe(s)))
	}
	r.applyTo(b[off&(stripeSize-1):][:n], off-r.Offset)
	e.replaced = g.places.link(g.places.move(s, to), e.replaced)
	return true
}

// wait makes hurry look after a writer that waits.
func (g *Guard) wait() {
	if g.places != nil && !g.waited.Swap(true) {
		g.patience.Reset(patience)
	}
}

// hurry makes writers continue that have waited for long.
func (g *Guard) hurry() {
	g.waited.Store(false) // writers that wait from now on start the timer again
	for i := range g.entries {
		e := &g.entries[i]
		e.mu.Lock()
		if e.long {
			writers := e.takeWriters()
			e.mu.Unlock()
			g.goOn(writers, true)
			continue
		}
		e.long = !e.waiting.empty()
		left := e.long
		e.mu.Unlock()
		if left {
			g.wait()
		}
	}
}
