package loadgen

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRampAndAmount: what is done within a ramp counts to io_size, and not to number_ios. A job that has done its work
// before its ramp is over has measured all of that. So it is with fio 3.33, at 500 operations a second.
func TestRampAndAmount(t *testing.T) {
	const each = 2 * time.Millisecond
	for name, c := range map[string]struct {
		ramp   time.Duration
		change func(*Spec)
		want   int64 // operations that are measured
		all    int64 // that were made
	}{
		"number_ios":                 {time.Second, func(s *Spec) { s.NumberIOs = 1000 }, 1000, 1500},
		"number_ios within the ramp": {3 * time.Second, func(s *Spec) { s.NumberIOs = 1000 }, 1000, 1000},
		"number_ios and loops":       {time.Second, func(s *Spec) { s.NumberIOs, s.Loops = 400, 2 }, 800, 1300},
		"io_size":                    {time.Second, func(s *Spec) { s.IOSize = 4 << 20 }, 524, 1024},
		"io_size within the ramp":    {3 * time.Second, func(s *Spec) { s.IOSize = 4 << 20 }, 1024, 1024},
	} {
		for _, rate := range []int{0, int(time.Second / each)} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := spec("randread")
					s.IODepth, s.RampTime, s.RateIOPS[Read], s.IOSize, s.LogEvery = 1, c.ramp, rate, 1<<30, 100*time.Millisecond
					c.change(&s)
					d := &fakeDevice{delay: each}
					if rate > 0 {
						d.delay = each / 2
					}
					res, err := runOne(d, s)
					if err != nil {
						t.Fatal(err)
					}
					near := func(what string, got, want int64) {
						if got < want-1 || got > want+1 {
							t.Errorf("%s: %d, want %d", what, got, want)
						}
					}
					m := &res.Ops[Read]
					near("operations that are measured", int64(m.IOs), c.want)
					near("operations that were made", d.count.Load(), c.all)
					near("their times", int64(res.Duration/each), c.want)
					near("their latency", m.Latency.Max(), int64(d.delay))
					near("operations that were not begun", int64(res.Unstarted), 0)
					for _, w := range res.Windows {
						if w.IOs[Read] == 0 {
							t.Errorf("a log has nothing of the interval that ends at %v", w.End)
						}
					}
				})
			})
		}
	}
}

// TestDepthsAfterRamp: how deep a job was within its ramp is in no figure.
func TestDepthsAfterRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := spec("randread")
		s.RampTime, s.Runtime, s.RateIOPS[Read] = time.Second, time.Second, 100
		d := &fakeDevice{delay: time.Millisecond, gate: make(chan struct{})}
		time.AfterFunc(s.RampTime/2, func() { close(d.gate) })
		res, err := runOne(d, s)
		if err != nil {
			t.Fatal(err)
		}
		if n := res.Ops[Read].IOs; res.Depths[0] < n-1 || res.Depths[0] > n+1 || res.Depths[1]+res.Depths[2] != 0 {
			t.Errorf("%d operations at depth 1, and %v at greater ones", n, res.Depths)
		}
	})
}
