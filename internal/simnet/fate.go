package simnet

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// Fate is what the faults of a Link do to one datagram.
type Fate struct {
	Lost       bool
	Corrupted  bool // a bit was flipped
	Duplicated bool // a copy arrives as well
}

// Draw decides the fate of one datagram. It changes payload if the datagram is corrupted.
func (l *Link) Draw(rng *rand.Rand, payload []byte) (f Fate) {
	if chance(rng, l.Loss) {
		f.Lost = true
		return f
	}
	if len(payload) > 0 && chance(rng, l.Corrupt) {
		f.Corrupted = true
		bit := rng.IntN(8 * len(payload))
		payload[bit/8] ^= 1 << (bit % 8)
	}
	f.Duplicated = chance(rng, l.Duplicate)
	return f
}

// defaultReorderDelay is the delay if Link.ReorderDelay is 0.
const defaultReorderDelay = time.Millisecond

// Transit draws how long one datagram is in flight, and whether it was delayed so that others
// overtake it.
func (l *Link) Transit(rng *rand.Rand) (took time.Duration, late bool) {
	took = l.Latency
	if l.Jitter > 0 {
		took += time.Duration(rng.Int64N(int64(l.Jitter) + 1))
	}
	if late = chance(rng, l.Reorder); late {
		took += cmp.Or(l.ReorderDelay, defaultReorderDelay)
	}
	return took, late
}

func chance(rng *rand.Rand, p float64) bool { return p > 0 && rng.Float64() < p }
