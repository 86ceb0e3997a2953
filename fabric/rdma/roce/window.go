package roce

import "time"

// window bounds the bytes that are on their way and not known to have arrived. It opens as TCP's does: by what is
// acknowledged until the first sign of congestion, then by one packet per round trip. Signs of congestion close it (see
// congestion.go).
type window struct {
	size        int // bytes admitted now
	inflight    int
	threshold   int // slow start ends here
	min, max    int
	credit      int           // what is left over from linear growth, in bytes × size
	cutUntil    time.Duration // no second cut for losses before then
	markedUntil time.Duration // nor for marks before then
	unheard     bool          // nothing has arrived since it was cut for silence

	// What it was before that cut, until it is cut for another reason, and when that cut was made. size is 0 for nothing.
	uncut struct {
		size, threshold int
		at              time.Duration
	}

	recent losses
}

func newWindow(initial, lowest, highest int) window {
	return window{size: initial, threshold: highest, min: lowest, max: highest}
}

// room returns how many more bytes may leave. One packet always may if the window is empty.
func (w *window) room() int   { return w.size - w.inflight }
func (w *window) empty() bool { return w.inflight == 0 }

// sent counts n bytes that leave.
func (w *window) sent(n int) { w.inflight += n }

// withdrawn takes back n bytes that were sent and are given up, to be sent again or not at all.
func (w *window) withdrawn(n int) { w.inflight -= n }

// acked records that n bytes have arrived. The window grows only while it is used.
func (w *window) acked(n int) {
	limited := 2*w.inflight >= w.size
	w.inflight -= n
	w.unheard = false
	switch {
	case !limited || w.size >= w.max:
	case w.size < w.threshold:
		w.size = min(w.size+n, w.max)
	default:
		w.credit += n * growth
		w.size = min(w.size+w.credit/w.size, w.max)
		w.credit %= w.size
	}
}

// growth is the linear growth in a round trip, in bytes: a large packet. It is the same for every window, as otherwise
// large ones would keep what they have.
const growth = 4 << 10

// halve cuts the window by half, but no lower than floor, unless it was cut less than a round
// trip ago: the losses of a round trip have one cause.
func (w *window) halve(floor int, now, rtt time.Duration) {
	if now >= w.cutUntil {
		w.cutUntil = now + rtt
		w.shrink(w.size/2, max(floor, w.min))
	}
}

// shrink reduces the window to size, or to floor if that is more, and ends slow start. It never opens the window.
func (w *window) shrink(size, floor int) {
	w.size = min(w.size, max(size, floor))
	w.threshold = w.size
	w.credit = 0
	w.uncut.size = 0
}
