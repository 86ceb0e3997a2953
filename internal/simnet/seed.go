package simnet

import (
	"os"
	"strconv"
)

// seedEnv is the environment variable with the seed for tests' networks.
const seedEnv = "NVMEOF_NET_SEED"

// TB is the part of testing.TB that is needed here; programs must not link package testing.
type TB interface {
	Helper()
	Failed() bool
	Cleanup(func())
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// SeedFor returns the seed of a test: the value of seedEnv, or 1. It is printed if the test fails: a run with the same
// seed loses the same datagrams as far as the order of sending is the same.
func SeedFor(t TB) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the network's seed was %d: %s=%d repeats it", seed, seedEnv, seed)
		}
	})
	return seed
}
