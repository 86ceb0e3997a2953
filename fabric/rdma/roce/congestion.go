package roce

import (
	"math"
	"time"
)

// The control law of congestion, for both windows of a path: that of requests, which the peer's
// ACKs open, and that of READs, which their answers do. docs/congestion.md tells more of it,
// with its sources and with plots.
//
// Congestion notifications, and marks on the answers of READs, close a window as DCQCN (Zhu et
// al., SIGCOMM 2015) lowers a rate: each by half of the share of recent intervals that had one.
// It opens again by a fixed number of bytes in a round trip, clocked by what arrives, as DCTCP's
// does (RFC 8257): DCQCN's timers of 55 µs are nothing that a program can keep.
//
// A loss is a sign of congestion where others agree: the round trip is long, or much is lost.
// Elsewhere it is taken for chance and ends slow start only.

// marks is what a window remembers of marks.
type marks struct {
	share float64       // of the intervals that had one, smoothed (α)
	at    time.Duration // when the last one was heeded; 0: never
}

// markGain is the weight of the last interval in marks.share (g).
const markGain = 1.0 / 16

// marked takes note of a mark at now. Others in the same interval say nothing new.
func (w *window) marked(now time.Duration) {
	m := &w.marks
	if m.at != 0 {
		if now < m.at+cnpInterval {
			return
		}
		quiet := float64((now-m.at)/cnpInterval - 1)
		m.share *= math.Pow(1-markGain, quiet)
	}
	m.share = (1-markGain)*m.share + markGain
	m.at = now
	w.shrink(int(float64(w.size)*(1-m.share/2)), w.min)
}

// losses counts what was lost in a round trip.
type losses struct {
	bytes int
	until time.Duration
}

// heavyLoss is the part of a window, one in so many bytes, from which losses are not taken for
// chance: random loss of 5% hardly ever comes up to it.
const heavyLoss = 5

// lossFloor is what few losses leave of a window, however long the round trip: on a busy machine
// that is long without congestion.
const lossFloor = initialWindow

// foundLost takes note of n bytes that are missing among others that arrived.
func (w *window) foundLost(n int, p *path, now time.Duration) {
	l, rtt := &w.recent, p.roundTrip()
	if now >= l.until {
		l.bytes, l.until = 0, now+rtt
	}
	l.bytes += n
	switch {
	case heavyLoss*l.bytes > w.size:
		w.halve(w.min, now, rtt)
	case p.delayed():
		w.halve(lossFloor, now, rtt)
	default:
		w.threshold = min(w.threshold, w.size)
	}
}

// lost halves the window because of a loss found at now; rtt is the round trip.
func (w *window) lost(now, rtt time.Duration) { w.halve(w.min, now, rtt) }

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
