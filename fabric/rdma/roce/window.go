package roce

import "time"

// window bounds the bytes that are on their way and not known to have arrived. It opens as
// TCP's does: by what is acknowledged until the first loss, then by about one packet in a
// round trip; a loss halves it, once in a round trip however many packets are gone.
//
// This is the seam of congestion control: requesters ask admits, and tell what they sent,
// what arrived, what was lost and what the network marked.
type window struct {
	size      int // bytes admitted now
	inflight  int
	threshold int // slow start ends here
	min, max  int
	credit    int           // acknowledged since the last step of linear growth
	cutUntil  time.Duration // no second cut before
}

func newWindow(initial, lowest, highest int) window {
	return window{size: initial, threshold: highest, min: lowest, max: highest}
}

// admits reports whether n more bytes may leave. One packet always may.
func (w *window) admits(n int) bool { return w.inflight == 0 || w.inflight+n <= w.size }

// sent takes note of n bytes that leave.
func (w *window) sent(n int) { w.inflight += n }

// withdrawn takes back n bytes that were sent and are given up, to be sent again or not at all.
func (w *window) withdrawn(n int) { w.inflight -= n }

// acked takes note of n bytes that arrived. The window grows only while it is used.
func (w *window) acked(n int) {
	limited := 2*w.inflight >= w.size
	w.inflight -= n
	switch {
	case !limited || w.size >= w.max:
	case w.size < w.threshold:
		w.size = min(w.size+n, w.max)
	default:
		if w.credit += n; w.credit >= w.size {
			w.credit = 0
			w.size = min(w.size+growthStep, w.max)
		}
	}
}

// growthStep is the linear growth per window of bytes acknowledged: a large packet or two.
const growthStep = 8 << 10

// lost halves the window because of a loss found at now, or of a congestion mark; rtt is the
// round trip.
func (w *window) lost(now, rtt time.Duration) {
	if now < w.cutUntil {
		return
	}
	w.cutUntil = now + rtt
	w.size = max(w.size/2, w.min)
	w.threshold = w.size
	w.credit = 0
}
