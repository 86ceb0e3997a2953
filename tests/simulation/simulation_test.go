package simulation

import (
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
	if text := os.Getenv(seedEnv); text != "" {
		seed, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
		simulate(t, seed)
		return
	}
	if text := os.Getenv(soakEnv); text != "" {
		soak(t, text)
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

// soak runs one seed after another, from a random one on, for as long or as many as limit says.
func soak(t *testing.T, limit string) {
	d, most := time.Duration(math.MaxInt64), uint64(math.MaxUint64)
	var err error
	if count, ok := strings.CutSuffix(limit, "x"); ok {
		most, err = strconv.ParseUint(count, 10, 64)
	} else {
		d, err = time.ParseDuration(limit)
	}
	if err != nil {
		t.Fatalf("%s: %v", soakEnv, err)
	}
	began, told := time.Now(), time.Now()
	first := rand.Uint64() >> 32
	n := uint64(0)
	for ; n < most && time.Since(began) < d && !t.Failed(); n++ {
		simulate(t, first+n)
		if time.Since(told) >= 10*time.Second {
			told = time.Now()
			t.Logf("%d worlds in %v", n+1, time.Since(began).Round(time.Second))
		}
	}
	t.Logf("%d worlds, from seed %d on", n, first)
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
