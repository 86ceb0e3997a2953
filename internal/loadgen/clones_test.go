package loadgen

import (
	"testing"
	"testing/synctest"
	"time"
)

// slowerDevice takes twice as long for each job as for the previous one.
type slowerDevice struct{ *fakeDevice }

func (d slowerDevice) OpenQueue(i int) (Queue, error) {
	return (*fakeQueue)(&fakeDevice{delay: d.delay << i}), nil
}

// TestClonesEnd: clones that complete their work, each at its own time, have rates of their own, also in a ramp;
// their group has the time of the one that ends last, as in fio.
func TestClonesEnd(t *testing.T) {
	for name, c := range map[string]struct{ ramp, runtime time.Duration }{
		"measured": {}, "the first within the ramp": {ramp: 300 * time.Millisecond},
		"the last when the time is over": {runtime: 900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const delay, every = time.Millisecond, 40 * time.Millisecond
				s := spec("read")
				s.IODepth, s.NumJobs, s.RampTime, s.LogEvery = 1, 3, c.ramp, every
				s.Runtime, s.Size = c.runtime, fakeSize
				res, err := Run(t.Context(), slowerDevice{&fakeDevice{delay: delay}}, []Spec{s}, Options{Interval: every})
				if err != nil {
					t.Fatal(err)
				}
				for i := range res.Jobs {
					j := &res.Jobs[i]
					want := time.Second.Seconds() / (delay << i).Seconds()
					if got := j.IOPS(&j.Ops[Read]); got < 0.97*want || got > 1.03*want {
						t.Errorf("job %d has %.0f IOPS, want %.0f", i, got, want)
					}
					begun := uint64(0)
					for _, n := range j.Depths {
						begun += n
					}
					if n := j.Ops[Read].IOs; begun != n && begun != n-1 { // the ramp may end while one is under way
						t.Errorf("the depths of job %d are those of %d operations of %d", i, begun, n)
					}
					for _, p := range j.Points {
						if p.IOs[Read] == 0 {
							t.Errorf("a sample of job %d has nothing", i)
						}
					}
					for _, w := range j.Windows {
						if w.IOs[Read] == 0 {
							t.Errorf("the log of job %d has nothing of the interval that ends at %v", i, w.End)
						}
					}
				}
				if g := Group(res.Jobs); g.Duration != res.Jobs[2].Duration {
					t.Errorf("the group took %v, and its last %v", g.Duration, res.Jobs[2].Duration)
				}
			})
		})
	}
}
