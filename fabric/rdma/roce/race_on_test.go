//go:build race

package roce

// raceEnabled has long simulations left out under the race detector, which slows them tenfold.
const raceEnabled = true
