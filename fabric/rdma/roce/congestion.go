package roce

import "time"

// The control law of congestion, for both windows of a path: that of requests, which the peer's
// ACKs open, and that of READs, which their answers do. docs/congestion.md tells more of it,
// with its sources and with plots.
//
// Congestion notifications, and marks on the answers of READs, take a quarter of a window, once
// in a round trip (as RFC 8511 has TCP take less for a mark than for a loss), and a fixed number
// of bytes comes back in each: additive increase and multiplicative decrease, of which Chiu and
// Jain show that flows come to share evenly. Rates kept by timers of 55 µs, as DCQCN's are, are
// nothing that a program can keep; so both are clocked by what arrives.
//
// A loss is a sign of congestion where others agree: the round trip is long, or much is lost.
// Elsewhere it is taken for chance and ends slow start only.

// marked takes note of a mark at now. Others in the same round trip say nothing new.
//
// The part that is taken doesn't depend on how many round trips had marks, as DCTCP's does: flows
// whose packets come in bursts are hit at random, and who was hit seldom would be hit lightly too.
func (w *window) marked(now, rtt time.Duration) {
	switch {
	case now < w.markedUntil:
		return
	case w.size < w.threshold: // which may be twice of what fits
		w.shrink(w.size/2, w.min)
	default:
		w.shrink(w.size-w.size/4, w.min)
	}
	w.markedUntil = now + max(rtt, cnpInterval)
}

// losses counts what was lost in a round trip.
type losses struct {
	bytes int
	until time.Duration
}

// heavyLoss is the part of a window, one in so many bytes, from which losses are not taken for
// chance: random loss of 5% hardly ever comes up to it.
const heavyLoss = 5

// lossFloor is what few losses leave of a window at least, however long the round trip, and
// maxLossFloor at most: somewhat less than a window may have, so that it isn't full for good.
const (
	lossFloor    = initialWindow
	maxLossFloor = 14 * lossFloor
)

// floor is what few losses leave of a window. On busy machines round trips are long without
// congestion, whenever a program has to wait for its turn; they vary more than a queue makes them.
// So there is room for what arrives in four mean deviations, as much as a timeout allows for: a
// window that a slice of the scheduler's time empties leaves the link idle.
func (w *window) floor(p *path) int {
	if p.rtt == 0 {
		return lossFloor
	}
	room := 4 * float64(w.size) * float64(p.rttVar) / float64(p.rtt)
	return int(min(lossFloor+room, maxLossFloor))
}

// foundLost takes note of n bytes that are missing among others that arrived.
func (w *window) foundLost(n int, p *path, now time.Duration) {
	l, rtt := &w.recent, p.roundTrip()
	if now >= l.until {
		l.bytes, l.until = 0, now+rtt
	}
	l.bytes += n
	switch {
	case heavyLoss*l.bytes > max(w.size, lossFloor):
		w.halve(w.min, now, rtt)
	case p.delayed():
		w.halve(w.floor(p), now, rtt)
	default:
		w.threshold = min(w.threshold, w.size)
	}
}

// lost halves the window because of a loss found at now; rtt is the round trip.
func (w *window) lost(now, rtt time.Duration) { w.halve(w.min, now, rtt) }

// silent halves the window because nothing of what is out in it was heard of in time: once until something arrives, as an
// outage has each queue pair find that.
func (w *window) silent(now, rtt time.Duration) {
	if !w.unheard {
		w.unheard = true
		w.lost(now, rtt)
	}
}

// cnpInterval is the shortest time between two congestion notifications to one queue pair: what
// DCQCN's authors take.
const cnpInterval = 50 * time.Microsecond

// congested takes note of a mark on a packet of the peer, which is told.
func (q *qp) congested(now time.Duration) {
	if now-q.cnpAt < cnpInterval && q.cnpAt != 0 {
		return
	}
	q.cnpAt, q.cnpDue = now, true
	q.d.markReady(q)
}
