package simnet

import (
	"os"
	"strconv"
	"testing"
)

// SeedEnv is the variable that gives the seed of NewFor's networks.
const SeedEnv = "NVMEOF_NET_SEED"

// NewFor makes a network for a test, which says how to repeat it if it fails: a run with the
// same seed loses the same datagrams as far as the order of sending is the same.
func NewFor(t testing.TB) *Network {
	t.Helper()
	return New(SeedFor(t))
}

// SeedFor is the seed of a test: SeedEnv's, or 1. It is printed if the test fails.
func SeedFor(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv(SeedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatalf("%s: %v", SeedEnv, err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the network's seed was %d: %s=%d repeats it", seed, SeedEnv, seed)
		}
	})
	return seed
}
