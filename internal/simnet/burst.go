package simnet

import "math/rand/v2"

// Burst describes losses that come in bursts: a path is good or bad, and changes state at
// random with each datagram (the Gilbert–Elliott model). The zero value never loses. Link.Loss
// is the loss in the good state.
//
// The mean burst lasts 1/Leave datagrams, and a fraction Enter/(Enter+Leave) of all datagrams
// meets the bad state.
type Burst struct {
	Enter float64 // probability that a datagram turns a good path bad
	Leave float64 // probability that a datagram turns a bad path good
	Loss  float64 // probability of loss in the bad state; 0 means all
}

// next advances the state by one datagram and reports whether that datagram is lost to the
// burst.
func (b *Burst) next(rng *rand.Rand, bad *bool) (lost bool) {
	if b.Enter <= 0 {
		return false
	}
	if *bad {
		*bad = !chance(rng, b.Leave)
	} else {
		*bad = chance(rng, b.Enter)
	}
	return *bad && (b.Loss == 0 || chance(rng, b.Loss))
}
