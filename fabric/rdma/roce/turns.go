package roce

import "slices"

// turns are queue pairs that wait for room in a window, oldest first. What the first of them needs the others leave free:
// where small packets took whatever room there is, a large one would never find any.
type turns []*turn

// turn is the place of a queue pair among them.
type turn struct {
	waits bool
	path  *path
	n     int // bytes that it needs
}

// fits reports whether t may take n bytes of a window in which so many are free, or all.
func (w *turns) fits(t *turn, n, free int, empty bool) bool {
	if len(*w) > 0 && (*w)[0] != t {
		free -= (*w)[0].n
	}
	return empty || n <= free
}

// join has t wait for n bytes on p.
func (w *turns) join(t *turn, p *path, n int) {
	t.path, t.n = p, n
	if !t.waits {
		t.waits = true
		*w = append(*w, t)
	}
}

// leave reports whether t has waited.
func (w *turns) leave(t *turn) bool {
	if len(*w) == 0 || !t.waits { // nobody waits mostly, and t isn't in the caches
		return false
	}
	t.waits = false
	i := slices.Index(*w, t)
	*w = slices.Delete(*w, i, i+1)
	return true
}

// maySend reports whether a packet that is new may leave, which counts n bytes in the window.
func (q *qp) maySend(n int) bool {
	r, p := &q.req, q.path
	passes := q.passesSilent() && r.inflight == 0
	if !passes && !p.sendTurns.fits(&r.sendTurn, n, p.window.size-p.window.inflight, p.window.inflight == 0) {
		p.sendTurns.join(&r.sendTurn, p, n)
		return false
	}
	p.sendTurns.leave(&r.sendTurn)
	return true
}

// mayRead reports whether a READ of n bytes that is new may leave. One that waits for the device's room keeps its place among
// those of its path.
func (q *qp) mayRead(n int) bool {
	d, r, p := q.d, &q.req, q.path
	switch {
	case q.passesSilent() && r.reads.empty():
	case !p.readTurns.fits(&r.pathTurn, n, d.readLimit(p)-p.reads.inflight, p.reads.inflight == 0):
		p.readTurns.join(&r.pathTurn, p, n)
		if d.readTurns.leave(&r.readTurn) {
			d.wakeForReads()
		}
		return false
	case !d.readTurns.fits(&r.readTurn, n, d.readBudget-d.readBytes, d.readBytes == 0):
		p.readTurns.join(&r.pathTurn, p, n)
		d.readTurns.join(&r.readTurn, p, n)
		return false
	}
	p.readTurns.leave(&r.pathTurn)
	d.readTurns.leave(&r.readTurn)
	return true
}

// readLimit bounds what may be asked for on p: its share of the device's room while others wait for that, of which a peer that
// answers slowly would have all after a while.
func (d *Device) readLimit(p *path) int {
	if !slices.ContainsFunc(d.readTurns, func(t *turn) bool { return t.path != p }) {
		return p.reads.size
	}
	return min(p.reads.size, d.readBudget/max(2, d.readers))
}

// waitNotToSend and waitNotToRead have q, which can't do so whatever room there is, leave that to the others.
func (q *qp) waitNotToSend() {
	if q.path.sendTurns.leave(&q.req.sendTurn) {
		q.d.wakeForWindow(q.path)
	}
}

func (q *qp) waitNotToRead() {
	atPath, atDevice := q.path.readTurns.leave(&q.req.pathTurn), q.d.readTurns.leave(&q.req.readTurn)
	if atPath || atDevice {
		q.d.wakeForReads()
	}
}
