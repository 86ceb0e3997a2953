package simulation

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/internal/race"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Variables of the simulation.
const (
	soakEnv = "NVMEOF_SIMULATION"      // how long to try new seeds ("10m"), or how many ("1000x"); see make simulate
	seedEnv = "NVMEOF_SIMULATION_SEED" // the only seed to run
)

const (
	rounds = 3
	length = 10 * time.Second // of a round, until everything is repaired
)

// TestSimulation simulates a world for each seed.
func TestSimulation(t *testing.T) {
	if fuzzing.Seeded(t, seedEnv, soakEnv, func(seed uint64) { simulate(t, seed) }) {
		return
	}
	for _, seed := range seeds() {
		if simulate(t, seed); t.Failed() {
			return
		}
	}
}

// seeds returns the seeds that TestSimulation runs. TestSeeds says why these.
func seeds() []uint64 {
	all := []uint64{12, 1, 29, 14, 17, 3}
	if race.Enabled {
		return all[:2] // which takes as long
	}
	return all
}

// TestSeeds: the few worlds that TestSimulation runs have everything that worlds differ in between them: both kinds of
// ports, digests that cover all, so that data is damaged, a keeper of reservations, and disks that execute requests in
// any order.
func TestSeeds(t *testing.T) {
	missing := map[string]bool{"rdma": true, "tcp": true, "damage": true, "reservations": true, "disorder": true}
	for _, seed := range seeds() {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			defer w.close()
			for _, kind := range w.kinds {
				delete(missing, kind.String())
				if kind == nvme.TransportTCP && w.tcp.covered() {
					delete(missing, "damage")
				}
			}
			if w.keeper != nil {
				delete(missing, "reservations")
			}
			if w.unordered {
				delete(missing, "disorder")
			}
		})
	}
	if len(missing) > 0 {
		t.Errorf("no world has %v", slices.Sorted(maps.Keys(missing)))
	}
}

func simulate(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		defer w.tell()
		for range rounds {
			if w.round(length); t.Failed() {
				t.FailNow() // what hangs can't be closed
			}
		}
		w.close()
	})
}
