package blockdev

import "time"

// What a Guard does where stripes can lie elsewhere.

// patience is how long a writer waits for views, twice as long at most, before it goes on beside them: who reads at a
// usual pace is done before, and nothing has to be copied.
const patience = 100 * time.Millisecond

// moveWithin has stripes lie in p.
func (g *Guard) moveWithin(p *places) {
	g.places = p
	g.patience = time.AfterFunc(time.Hour, g.hurry)
	g.patience.Stop()
}

// stop ends what moveWithin began, when nobody reads or writes any more.
func (g *Guard) stop() { g.patience.Stop() }

// replace has the stripe that begins at off lie in another place, written before. Where it was is free when nobody
// reads it any more.
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

// moveAside has the stripe at off lie in a free place, with what it holds unless n bytes that are written next are all of
// it. It returns false where no place is free, or none can be. Called with e.mu held.
func (g *Guard) moveAside(e *guardEntry, off, n int64) bool {
	if g.places == nil {
		return false
	}
	to := g.places.take(1)
	if to == 0 {
		return false
	}
	from := g.places.move(off>>stripeShift, to)
	if n < stripeSize {
		copy(g.places.bytes(to), g.places.bytes(from))
	}
	e.replaced = g.places.link(from, e.replaced)
	return true
}

// wait has hurry look after a writer that waits.
func (g *Guard) wait() {
	if g.places != nil && !g.waited.Swap(true) {
		g.patience.Reset(patience)
	}
}

// hurry has writers go on that have waited for long.
func (g *Guard) hurry() {
	g.waited.Store(false) // who waits from now on calls for the next
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
