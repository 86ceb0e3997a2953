package roce

import "slices"

// turns are queue pairs that wait for room in a window, oldest first. The others leave free what the first one needs:
// if small packets took whatever room there is, a large one would never find any. So if the first finds no room none
// does, and as there may be a thousand of them, only those that there is room for are made ready.
type turns []*turn

// turn is the place of a queue pair among them.
type turn struct {
	waits bool
	q     *qp
	n     int // bytes that it needs
}

// fits reports whether t may take n bytes of a window that has free bytes free, or is empty.
func (w *turns) fits(t *turn, n, free int, empty bool) bool {
	if len(*w) > 0 && (*w)[0] != t {
		free -= (*w)[0].n
	}
	return empty || n <= free
}

// join makes q wait for n bytes at t. It returns false if q already did.
func (w *turns) join(t *turn, q *qp, n int) (joined bool) {
	t.q, t.n = q, n
	if t.waits {
		return false
	}
	t.waits = true
	*w = append(*w, t)
	return true
}

// leave ends the waiting of t, and reports whether it was waiting.
func (w *turns) leave(t *turn) bool {
	if len(*w) == 0 || !t.waits { // mostly nobody waits, and t isn't in the caches
		return false
	}
	t.waits = false
	i := slices.Index(*w, t)
	*w = slices.Delete(*w, i, i+1)
	return true
}

// wake makes ready the queue pairs for which there is room in a window that has free bytes free, or is empty.
func (w turns) wake(free int, empty bool) {
	for i, t := range w {
		if free -= t.n; free < 0 && (!empty || i > 0) {
			return
		}
		t.q.d.markReady(t.q)
	}
}

// maySend reports whether a new packet, which counts n bytes in the window, may leave.
func (q *qp) maySend(n int) bool {
	r, p := &q.req, q.path
	if !p.sendTurns.fits(&r.sendTurn, n, p.window.room(), p.window.empty()) {
		p.sendTurns.join(&r.sendTurn, q, n)
		return false
	}
	p.sendTurns.leave(&r.sendTurn)
	return true
}

// maySendAgain reports whether a packet that was lost may leave again. It doesn't wait for others' turns.
func (q *qp) maySendAgain(n int) bool {
	if w := &q.path.window; w.empty() || n <= w.room() {
		return true
	}
	q.path.sendTurns.join(&q.req.sendTurn, q, n)
	return false
}

// mayRead reports whether a new READ of n bytes may leave. One that waits for the device's room keeps its place among
// those of its path.
func (q *qp) mayRead(n int) bool {
	d, r, p := q.d, &q.req, q.path
	switch {
	case !p.readTurns.fits(&r.pathTurn, n, d.readRoom(p), p.reads.empty()):
		p.readTurns.join(&r.pathTurn, q, n)
		if q.leaveDevice() {
			d.wakeForDevice()
		}
		return false
	case !d.readTurns.fits(&r.readTurn, n, d.readBudget-d.readBytes, d.readBytes == 0):
		p.readTurns.join(&r.pathTurn, q, n)
		q.joinDevice(n)
		return false
	}
	p.readTurns.leave(&r.pathTurn)
	q.leaveDevice()
	return true
}

// mayReadAgain reports whether n bytes that were lost may be asked for again. It doesn't wait for others' turns.
func (q *qp) mayReadAgain(n int) bool {
	d, r, p := q.d, &q.req, q.path
	switch {
	case !p.reads.empty() && n > p.reads.room():
		p.readTurns.join(&r.pathTurn, q, n)
	case d.readBytes > 0 && n > d.readBudget-d.readBytes:
		q.joinDevice(n)
	default:
		return true
	}
	return false
}

// joinDevice and leaveDevice make q wait for n bytes of the device's room, and end that.
func (q *qp) joinDevice(n int) {
	if q.d.readTurns.join(&q.req.readTurn, q, n) {
		q.path.atDevice++
	}
}

func (q *qp) leaveDevice() bool {
	waited := q.d.readTurns.leave(&q.req.readTurn)
	if waited {
		q.path.atDevice--
	}
	return waited
}

// readRoom returns how many more bytes may be asked for on p. While others wait for the device's room, p has only its
// share of that: otherwise a peer that answers slowly would have all of it after a while.
func (d *Device) readRoom(p *path) int {
	limit := p.reads.size
	if len(d.readTurns) > p.atDevice {
		limit = min(limit, d.readBudget/max(2, d.readers))
	}
	return limit - p.reads.inflight
}

// wakeForWindow wakes the queue pairs that find room in p's window.
func (d *Device) wakeForWindow(p *path) {
	p.sendTurns.wake(p.window.room(), p.window.empty())
}

// wakeForReads wakes the queue pairs that find room for what they ask for, on p and at the device.
func (d *Device) wakeForReads(p *path) {
	p.readTurns.wake(d.readRoom(p), p.reads.empty())
	d.wakeForDevice()
}

func (d *Device) wakeForDevice() {
	d.readTurns.wake(d.readBudget-d.readBytes, d.readBytes == 0)
}

// waitNotToSend and waitNotToRead end q's waiting for room when something else stops it, and leave the room to others.
func (q *qp) waitNotToSend() {
	if q.path.sendTurns.leave(&q.req.sendTurn) {
		q.d.wakeForWindow(q.path)
	}
}

func (q *qp) waitNotToRead() {
	atPath, atDevice := q.path.readTurns.leave(&q.req.pathTurn), q.leaveDevice()
	if atPath || atDevice {
		q.d.wakeForReads(q.path)
	}
}
