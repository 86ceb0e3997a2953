package roce

import "time"

// The control law of congestion, for both windows of a path: that of requests, which the peer's ACKs open, and that of
// READs, which their answers open. docs/congestion.md describes it in more detail, with its sources and with plots.
//
// Congestion notifications, and marks on the answers of READs, reduce a window by a quarter, once per round trip (as
// RFC 8511 makes TCP reduce it less for a mark than for a loss), and in each round trip it regains a fixed number of
// bytes: additive increase and multiplicative decrease, which Chiu and Jain show makes flows converge to equal shares.
// A program can't maintain rates with timers of 55 µs as DCQCN does; so both are clocked by what arrives.
//
// A loss counts as a sign of congestion if other signs agree: the round trip is long, or much is lost. Otherwise it is
// attributed to chance and only ends slow start.

// marked handles a mark at now. Further marks in the same round trip carry no new information.
//
// Unlike in DCTCP, the reduction doesn't depend on how many round trips had marks: flows whose packets come in bursts
// are hit at random, and one that was hit rarely would also be reduced less.
func (w *window) marked(now, rtt time.Duration) {
	switch {
	case now < w.markedUntil:
		return
	case w.size < w.threshold: // which may be twice the size that fits
		w.shrink(w.size/2, w.min)
	default:
		w.shrink(w.size-w.size/4, w.min)
	}
	w.markedUntil = now + max(rtt, cnpInterval)
}

// losses counts the bytes lost in a round trip.
type losses struct {
	bytes int
	until time.Duration
}

// heavyLoss is the fraction of a window, one in so many bytes, from which losses are no longer attributed to chance: a
// random loss of 5% hardly ever reaches it.
const heavyLoss = 5

// lossFloor is the least that floor returns, however long the round trip, and maxLossFloor the most: somewhat less than a
// window may have, so that it doesn't stay full for good.
const (
	lossFloor    = initialWindow
	maxLossFloor = 14 * lossFloor
)

// floor returns the size below which a few losses don't reduce a window. On busy machines round trips are long without
// congestion, whenever a program has to wait for its turn; they vary more than a queue would make them. So there is
// room for what arrives in four mean deviations, as much as a timeout allows for: a window that is used up during one
// time slice of the scheduler leaves the link idle.
func (w *window) floor(p *path) int {
	if p.rtt == 0 {
		return lossFloor
	}
	room := 4 * float64(w.size) * float64(p.rttVar) / float64(p.rtt)
	return int(min(lossFloor+room, maxLossFloor))
}

// foundLost handles the loss of n bytes, which are missing among others that arrived.
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
		w.uncut.size = 0
	}
}

// lost halves the window because of a loss found at now; rtt is the round trip.
func (w *window) lost(now, rtt time.Duration) { w.halve(w.min, now, rtt) }

// silent halves the window because nothing in it was acknowledged in time: only once until something arrives, since in
// an outage each queue pair finds that.
func (w *window) silent(now, rtt time.Duration) {
	if !w.unheard {
		w.unheard = true
		size, threshold := w.size, w.threshold
		w.lost(now, rtt)
		w.uncut.size, w.uncut.threshold, w.uncut.at = size, threshold, now
	}
}

// wasLate undoes a cut for silence that was made after since, because the answer that was awaited from then on was not
// lost, but late (RFC 4015).
func (w *window) wasLate(since time.Duration) {
	if b := &w.uncut; b.size > 0 && b.at >= since {
		w.size, w.threshold = max(w.size, b.size), max(w.threshold, b.threshold)
		b.size = 0
	}
}
