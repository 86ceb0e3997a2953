package simnet

import "math/rand/v2"

// Burst describes losses that come in bursts: a way is good or bad, and changes at random with
// each datagram (the model of Gilbert and Elliott). The zero value never loses. Link.Loss is
// what the good state loses.
//
// The mean burst lasts 1/Leave datagrams, and a share of Enter/(Enter+Leave) of all meets the
// bad state.
type Burst struct {
	Enter float64 // probability that a datagram turns a good way bad
	Leave float64 // probability that a datagram turns a bad way good
	Loss  float64 // in the bad state; 0 means all
}

// next moves the state on by one datagram and reports whether that one is lost to the burst.
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
