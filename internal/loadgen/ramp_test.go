package loadgen

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRampAndAmount: what is done within a ramp counts towards io_size, but not towards number_ios. A job that
// completes its work before its ramp is over is measured in full. fio 3.33 does the same, at 500 operations per
// second.
func TestRampAndAmount(t *testing.T) {
	const each = 2 * time.Millisecond
	for name, c := range map[string]struct {
		ramp   time.Duration
		change func(*Spec)
		want   int64 // measured operations
		all    int64 // all operations made
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
					res := mustRun(t, d, s)
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

// TestDepthsAfterRamp: the depths of a job within its ramp are in no figure.
func TestDepthsAfterRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := spec("randread")
		s.RampTime, s.Runtime, s.RateIOPS[Read] = time.Second, time.Second, 100
		d := &fakeDevice{delay: time.Millisecond, gate: make(chan struct{})}
		time.AfterFunc(s.RampTime/2, func() { close(d.gate) })
		res := mustRun(t, d, s)
		if n := res.Ops[Read].IOs; res.Depths[0] < n-1 || res.Depths[0] > n+1 || res.Depths[1]+res.Depths[2] != 0 {
			t.Errorf("%d operations at depth 1, and %v at greater ones", n, res.Depths)
		}
	})
}

// TestRampBeside: a job that completes its work within its ramp disturbs no other.
func TestRampBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, long := spec("read"), spec("randread")
		short.RampTime, long.RampTime, long.Runtime = 2*time.Second, time.Second, 5*time.Second
		res, err := Run(t.Context(), &fakeDevice{delay: 10 * time.Millisecond}, []Spec{short, long}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if j := &res.Jobs[0]; j.Duration != 320*time.Millisecond || j.Ops[Read].IOs != fakeSize/4096 {
			t.Errorf("the short one: %d operations in %v, want 256 in 320ms", j.Ops[Read].IOs, j.Duration)
		}
		if j := &res.Jobs[1]; j.Duration < 5*time.Second || j.Duration > 5*time.Second+10*time.Millisecond {
			t.Errorf("the long one took %v, want 5s", j.Duration)
		}
	})
}

// TestVerifyAfterRamp: reading back what a job wrote within its ramp doesn't change how long the job took.
func TestVerifyAfterRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := verifySpec("write")
		s.IODepth, s.RampTime = 1, 3*time.Second
		res := mustRun(t, &fakeDevice{delay: time.Millisecond, data: make([]byte, fakeSize)}, s)
		if want := fakeSize / 4096 * time.Millisecond; res.Duration != want || res.Verified != fakeSize {
			t.Errorf("%d bytes verified, after %v; want %d, %v", res.Verified, res.Duration, fakeSize, want)
		}
	})
}
