package fuzzing

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// witness is a test whose end is looked at.
type witness struct {
	testing.TB
	failed bool
	said   strings.Builder
}

func (w *witness) Helper()      {}
func (w *witness) Failed() bool { return w.failed }

func (w *witness) Logf(format string, args ...any) { fmt.Fprintf(&w.said, format+"\n", args...) }

func (w *witness) Fatalf(format string, args ...any) {
	w.failed = true
	w.Logf(format, args...)
	runtime.Goexit()
}

// seeded returns the seeds that run with only and soak in the environment, each of which takes a second, and what is
// said. That of index fails fails.
func seeded(t *testing.T, only, soak string, fails int) (seeds []uint64, chosen bool, w *witness) {
	t.Helper()
	t.Setenv("NVMEOF_TEST_SEED", only)
	t.Setenv("NVMEOF_TEST_SOAK", soak)
	synctest.Test(t, func(t *testing.T) {
		w = &witness{TB: t}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			chosen = Seeded(w, "NVMEOF_TEST_SEED", "NVMEOF_TEST_SOAK", func(seed uint64) {
				time.Sleep(time.Second)
				w.failed = len(seeds) == fails
				seeds = append(seeds, seed)
			})
		}()
		<-ended
	})
	return seeds, chosen, w
}

// TestSeeded: the environment chooses the seeds of a test.
func TestSeeded(t *testing.T) {
	for _, x := range []struct {
		only, soak string
		fails, n   int
		said       string // how it begins
	}{
		{"", "", -1, 0, ""},
		{"0x7", "5s", -1, 1, ""},
		{"", "25x", -1, 25, "10 seeds in 10s\n20 seeds in 20s\n25 seeds, from "},
		{"", "25x", 3, 4, "4 seeds, from "},
		{"", "5s", -1, 5, "5 seeds, from "},
		{"", "0x", -1, 0, "0 seeds, from "},
		{"seven", "", -1, 0, `NVMEOF_TEST_SEED="seven": want a number`},
		{"", "5", -1, 0, `NVMEOF_TEST_SOAK="5": want a time, as 10m, or a number of seeds, as 10000x`},
		{"", "-x", -1, 0, `NVMEOF_TEST_SOAK="-x": want `},
	} {
		seeds, chosen, w := seeded(t, x.only, x.soak, x.fails)
		if said := w.said.String(); len(seeds) != x.n || !strings.HasPrefix(said, x.said) || (x.said == "") != (said == "") {
			t.Errorf("only %q, soak %q: %d seeds, %q", x.only, x.soak, len(seeds), said)
		}
		if want := x.only+x.soak != "" && (!w.failed || x.fails >= 0); chosen != want {
			t.Errorf("only %q, soak %q: chosen is %v", x.only, x.soak, chosen)
		}
		for i, seed := range seeds {
			if seed != seeds[0]+uint64(i) || x.only != "" && seed != 7 {
				t.Errorf("only %q, soak %q: seeds %v", x.only, x.soak, seeds)
			}
		}
	}
}
