package loadgen

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// starts returns when the operations of a run began.
type starts struct {
	mu sync.Mutex
	at []time.Duration
}

func (s *starts) note(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Since(began))
}

// TestThinkTime: after the given number of operations, and once the outstanding ones have ended, a job rests.
func TestThinkTime(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		depth, blocks int
		want          []time.Duration
	}{
		// A negative number counts those that have begun.
		"one by one":        {1, 0, []time.Duration{0, 11 * ms, 22 * ms, 33 * ms, 44 * ms, 55 * ms}},
		"two by two":        {1, 2, []time.Duration{0, ms, 12 * ms, 13 * ms, 24 * ms, 25 * ms}},
		"at once":           {4, 1, []time.Duration{0, 0, 0, 0, 11 * ms, 11 * ms}},
		"deeper":            {2, 2, []time.Duration{0, 0, ms, 12 * ms, 12 * ms, 13 * ms}},
		"begun, one by one": {1, -1, []time.Duration{0, 11 * ms, 22 * ms, 33 * ms, 44 * ms, 55 * ms}},
		"begun, two by two": {1, -2, []time.Duration{0, ms, 12 * ms, 13 * ms, 24 * ms, 25 * ms}},
		"begun, at once":    {2, -2, []time.Duration{0, 0, 11 * ms, 11 * ms, 22 * ms, 22 * ms}},
		"begun, deeper":     {8, -2, []time.Duration{0, 0, 11 * ms, 11 * ms, 22 * ms, 22 * ms}},
		"deep and long":     {2, -4, []time.Duration{0, 0, ms, ms, 12 * ms, 12 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, when := time.Now(), starts{}
				s := spec("read")
				s.IODepth, s.ThinkTime, s.ThinkIOs, s.NumberIOs = c.depth, 10*ms, max(c.blocks, -c.blocks), 6
				s.ThinkIssued = c.blocks < 0
				res, err := runOne(&fakeDevice{delay: ms, seen: func(*IO) { when.note(began) }}, s)
				if err != nil || !slices.Equal(when.at, c.want) {
					t.Errorf("%v; operations began at %v, want %v", err, when.at, c.want)
				}
				if last := c.want[5] + ms; res.Duration != last { // it doesn't rest at the end
					t.Errorf("it took %v, want %v", res.Duration, last)
				}
				if worst := time.Duration(res.Ops[Read].Latency.Max()); worst != ms {
					t.Errorf("the longest operation took %v: rests are not operations'", worst)
				}
			})
		})
	}
}

// TestThinkSpin: a rest occupies a processor for as long as it is told to, and takes that long at least.
func TestThinkSpin(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ rest, spin, length, busy time.Duration }{
		{20 * ms, 0, 80 * ms, 0}, {20 * ms, 15 * ms, 80 * ms, 10 * ms}, {ms, 30 * ms, 120 * ms, 10 * ms},
	} {
		s := spec("read")
		s.IODepth, s.ThinkTime, s.ThinkSpin, s.NumberIOs = 1, c.rest, c.spin, 5
		res := mustRun(t, &fakeDevice{}, s)
		// A busy machine gives a part of its processor.
		if used := res.CPU(); res.Duration < c.length || used < c.busy || c.busy == 0 && used >= 40*ms {
			t.Errorf("%v of %v: it took %v, of which %v occupied a processor", c.spin, c.rest, res.Duration, used)
		}
	}
}

// TestThinkTimeWithRate: operations that become due during a rest begin after it, and aren't late for that; those that
// wait for others are. A rest begins whether the next operation is due or not.
func TestThinkTimeWithRate(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		depth, blocks int
		rest          time.Duration
		want          []time.Duration
		worst         time.Duration
	}{
		"within the interval": {1, 1, 5 * ms, []time.Duration{0, 10 * ms, 20 * ms, 30 * ms, 40 * ms, 50 * ms}, ms},
		"one by one":          {8, 1, 25 * ms, []time.Duration{0, 26 * ms, 52 * ms, 78 * ms, 104 * ms, 130 * ms}, ms},
		"three by three":      {8, 3, 25 * ms, []time.Duration{0, 10 * ms, 20 * ms, 46 * ms, 46 * ms, 50 * ms}, ms},
		"behind each other":   {1, 3, 25 * ms, []time.Duration{0, 10 * ms, 20 * ms, 46 * ms, 47 * ms, 50 * ms}, 2 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, when := time.Now(), starts{}
				s := spec("read")
				s.IODepth, s.ThinkTime, s.ThinkIOs, s.NumberIOs, s.RateIOPS[Read] = c.depth, c.rest, c.blocks, 6, 100
				s.ThinkIssued = true
				res := mustRun(t, &fakeDevice{delay: ms, seen: func(*IO) { when.note(began) }}, s)
				for i := range when.at {
					when.at[i] = when.at[i].Truncate(ms) // the pacer sleeps for a least time
				}
				if !slices.Equal(when.at, c.want) {
					t.Errorf("operations began at %v, want %v", when.at, c.want)
				}
				if m := &res.Ops[Read]; m.IOs != 6 || time.Duration(m.Latency.Max()).Round(ms) != c.worst {
					t.Errorf("%d operations, the longest took %v, want 6 and %v", m.IOs, time.Duration(m.Latency.Max()), c.worst)
				}
			})
		})
	}
}

// TestThinkTimeWithStall: what waits because the device stands still is late, with rests too.
func TestThinkTimeWithStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 100 * time.Millisecond
		open := make(chan struct{})
		time.AfterFunc(stall, func() { close(open) })
		s := spec("read")
		s.IODepth, s.ThinkTime, s.ThinkIOs, s.NumberIOs, s.RateIOPS[Read] = 1, time.Millisecond, 1000, 11, 100
		m := &mustRun(t, &fakeDevice{gate: open}, s).Ops[Read]
		if p := time.Duration(m.Latency.Percentile(50)); m.IOs != 11 || p < 40*time.Millisecond || p > 60*time.Millisecond {
			t.Errorf("%d operations, half of them took %v at most, want about half the stall of %v", m.IOs, p, stall)
		}
	})
}

// TestThinkTimeWithRateOfOne: rests are those of all operations, also if only one direction has a rate.
func TestThinkTimeWithRateOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		s := spec("randrw")
		s.IODepth, s.ThinkTime, s.ThinkIOs, s.Runtime, s.RateIOPS[Write], s.ThinkIssued = 2, 9*ms, 4, 96*ms, 50, true
		res := mustRun(t, &fakeDevice{delay: ms}, s)
		// In 11 ms each there are 4 operations: a write every 20 ms, and reads for the rest.
		if r, w := &res.Ops[Read], &res.Ops[Write]; w.IOs != 5 || r.IOs != 9*4-5 || time.Duration(max(r.Latency.Max(), w.Latency.Max())) > 2*ms {
			t.Errorf("%d reads and %d writes, which took %v and %v at most", r.IOs, w.IOs, time.Duration(r.Latency.Max()), time.Duration(w.Latency.Max()))
		}
	})
}

// TestThinkTimeOfTrimsWithRate: with a rate no rest comes between a trim and the write that follows it.
func TestThinkTimeOfTrimsWithRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		began, when := time.Now(), starts{}
		s := spec("trimwrite")
		s.IODepth, s.ThinkTime, s.ThinkIOs, s.NumberIOs, s.RateIOPS[Write], s.RateIOPS[Trim] = 4, 10*ms, 1, 3, 1000, 1000
		s.ThinkIssued = true
		mustRun(t, &fakeDevice{delay: ms, seen: func(*IO) { when.note(began) }}, s)
		if want := []time.Duration{0, ms, 12 * ms, 13 * ms, 24 * ms, 25 * ms}; !slices.Equal(when.at, want) {
			t.Errorf("operations began at %v, want %v", when.at, want)
		}
	})
}

// TestEndOfThinkingWithRate: a run that ends while its jobs rest doesn't wait for them. What became due in the rest is
// told.
func TestEndOfThinkingWithRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := spec("randwrite")
		s.IODepth, s.NumJobs, s.ThinkTime, s.Runtime, s.Verify, s.RateIOPS[Write] = 2, 2, time.Hour, time.Second, true, 10
		d := &fakeDevice{delay: time.Millisecond, data: make([]byte, fakeSize)}
		res, err := runOne(d, s)
		if err != nil || res.Ops[Write].IOs != 2 || res.Duration != s.Runtime || res.Verified != 2*4096 || res.Unstarted < 17 || res.Unstarted > 19 {
			t.Errorf("%v; %d operations in %v, %d not begun, %d bytes verified", err, res.Ops[Write].IOs, res.Duration, res.Unstarted, res.Verified)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// promptDevice ends each operation before Submit returns.
type promptDevice struct {
	fakeDevice

	late time.Duration // by how much Submit returns later
}

func (d *promptDevice) OpenQueue(int) (Queue, error) {
	return promptQueue{(*fakeQueue)(&d.fakeDevice), d.late}, nil
}

type promptQueue struct {
	*fakeQueue

	late time.Duration
}

func (q promptQueue) Submit(io *IO) {
	q.begin()
	q.seen(io)
	time.Sleep(q.delay)
	q.depth.Add(-1)
	io.Done(io)
	time.Sleep(q.late)
}

// TestThinkTimeOfPrompt: a job whose operations end while it still starts others rests when none is left to start.
func TestThinkTimeOfPrompt(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		delay, late time.Duration
		want        []time.Duration
	}{
		"at once":              {ms, 0, []time.Duration{0, ms, 12 * ms, 13 * ms, 24 * ms, 25 * ms}},
		"longer than the rest": {0, 20 * ms, []time.Duration{0, 0, 50 * ms, 50 * ms, 100 * ms, 100 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, when := time.Now(), starts{}
				s := spec("read")
				s.IODepth, s.ThinkTime, s.ThinkIOs, s.NumberIOs = 2, 10*ms, 2, 6
				d := &promptDevice{fakeDevice{delay: c.delay, seen: func(*IO) { when.note(began) }}, c.late}
				res, err := Run(t.Context(), d, []Spec{s}, Options{})
				if err != nil || !slices.Equal(when.at, c.want) || d.deepest.Load() != 1 {
					t.Fatalf("%v; operations began at %v, want %v; %d at a time", err, when.at, c.want, d.deepest.Load())
				}
				if n := res.Jobs[0].Ops[Read].IOs; n != 6 {
					t.Errorf("%d operations are counted", n)
				}
			})
		})
	}
}

// TestShortThinkTime: rests that are shorter than the runtime's timers are late last no longer than that.
func TestShortThinkTime(t *testing.T) {
	began, when := time.Now(), starts{}
	s := spec("read")
	s.IODepth, s.ThinkTime, s.NumberIOs = 1, 50*time.Microsecond, 100
	d := &promptDevice{fakeDevice: fakeDevice{seen: func(*IO) { when.note(began) }}}
	if _, err := Run(t.Context(), d, []Spec{s}, Options{}); err != nil || len(when.at) != 100 {
		t.Fatalf("%v; %d operations", err, len(when.at))
	}
	shortest := time.Hour // a busy machine may delay most of them
	for i, at := range when.at[1:] {
		shortest = min(shortest, at-when.at[i])
	}
	if shortest < s.ThinkTime || shortest >= late {
		t.Errorf("the shortest of 99 rests took %v, want %v to %v", shortest, s.ThinkTime, late)
	}
}

// TestEndOfThinking: a run that ends while its jobs rest doesn't wait for them, and what it wrote is checked.
func TestEndOfThinking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := spec("randwrite")
		s.IODepth, s.NumJobs, s.ThinkTime, s.ThinkIssued, s.Runtime, s.Verify = 2, 2, time.Hour, true, time.Second, true
		d := &fakeDevice{delay: time.Millisecond, data: make([]byte, fakeSize)}
		res, err := runOne(d, s)
		if err != nil || res.Ops[Write].IOs != 2 || res.Duration != s.Runtime || res.Verified != 2*4096 {
			t.Errorf("%v; %d operations in %v, %d bytes verified", err, res.Ops[Write].IOs, res.Duration, res.Verified)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if n := d.lent.Load(); n != 0 {
			t.Errorf("%d buffers weren't given back", n)
		}
	})
}

// TestStartDelay: jobs begin when their delay is over; their ramp and runtime count from then.
func TestStartDelay(t *testing.T) {
	for name, rate := range map[string]int{"as fast as it goes": 0, "with a rate": 100} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, when := time.Now(), starts{}
				s := spec("read")
				s.IODepth, s.Delay, s.RampTime, s.Runtime, s.RateIOPS[Read] = 1, 3*time.Second, 2*time.Second, time.Second, rate
				const delay = 10 * time.Millisecond
				res := mustRun(t, &fakeDevice{delay: delay, seen: func(*IO) { when.note(began) }}, s)
				if first := when.at[0]; first < s.Delay || first > s.Delay+delay {
					t.Errorf("the first operation began after %v", first)
				}
				if took := time.Since(began); took < 6*time.Second || took > 6020*time.Millisecond ||
					res.Duration < time.Second || res.Duration > time.Second+delay {
					t.Errorf("it took %v, of which %v are measured", took, res.Duration)
				}
				if n := res.Ops[Read].IOs; n < 99 || n > 102 {
					t.Errorf("%d operations in the second that is measured", n)
				}
			})
		})
	}
}

// TestTimesOfSeveral: each job begins, is measured and ends at its own times, whichever is named first.
func TestTimesOfSeveral(t *testing.T) {
	const delay = 10 * time.Millisecond
	early, late := spec("read"), spec("write")
	early.Delay, early.RampTime, early.Runtime = 500*time.Millisecond, time.Second, 2*time.Second
	late.Delay, late.RampTime, late.Runtime = time.Second, 3*time.Second, 5*time.Second
	for _, specs := range [][]Spec{{early, late}, {late, early}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var mu sync.Mutex
			var first, last [ops]time.Duration
			d := &fakeDevice{delay: delay, seen: func(io *IO) {
				mu.Lock()
				defer mu.Unlock()
				if last[io.Op] = time.Since(began); first[io.Op] == 0 {
					first[io.Op] = last[io.Op]
				}
			}}
			res, err := Run(t.Context(), d, specs, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range specs {
				s, op := &specs[i], Read
				if s.Does(Write) {
					op = Write
				}
				near := func(what string, got, want time.Duration) {
					if got < want-delay || got > want+delay {
						t.Errorf("%v: %s %v, want %v", op, what, got, want)
					}
				}
				near("the first began after", first[op], s.Delay)
				near("the last began after", last[op], s.Delay+s.RampTime+s.Runtime)
				near("it took", res.Jobs[i].Duration, s.Runtime)
			}
		})
	}
}

// TestEndBeforeTheStart: a run that ends before its jobs begin starts nothing.
func TestEndBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d := &fakeDevice{}
		s, rated := spec("read"), spec("read")
		s.Delay, rated.Delay, rated.RateIOPS[Read] = time.Hour, time.Hour, 10
		res, err := Run(ctx, d, []Spec{s, rated}, Options{pace: paceByTimer})
		if err != nil || d.count.Load() != 0 || res.Jobs[0].Duration != 0 || res.Jobs[1].Unstarted != 0 {
			t.Errorf("%v; %d operations, %+v", err, d.count.Load(), res)
		}
	})
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestThinkTimeContended: a rest that comes just after the operation before it was started doesn't end the job.
func TestThinkTimeContended(t *testing.T) {
	s := spec("randread")
	s.IODepth, s.ThinkTime, s.ThinkIOs, s.NumberIOs, s.IOSize = 1, time.Nanosecond, 1, 700, 1<<40
	d := &fakeDevice{}
	r := &run{idle: make(chan struct{}), failed: make(chan struct{})}
	if err := r.makeTasks(d, []Spec{s}); err != nil {
		t.Fatal(err)
	}
	r.running.Store(1)
	j, other := r.jobs[0], sync.WaitGroup{}
	other.Go(func() { // it wants the job's lock all the time, so that operations end at any moment
		for over := false; !over; {
			j.mu.Lock()
			for range 50 {
				over = over || isClosed(r.idle)
			}
			j.mu.Unlock()
		}
	})
	r.tasks[0].hold()
	r.tasks[0].begin()
	other.Wait()
	if n := d.count.Load(); n != s.NumberIOs {
		t.Errorf("%d operations, want %d", n, s.NumberIOs)
	}
}
