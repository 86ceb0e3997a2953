package loadgen

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestPacerRefused: where the system refuses to wait for the time at which an operation is due, a run at a rate fails,
// and says which call. It would stand still.
func TestPacerRefused(t *testing.T) {
	for name, call := range map[string]uint32{"ppoll": unix.SYS_PPOLL, "eventfd2": unix.SYS_EVENTFD2} {
		t.Run(name, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			sandbox.Refuse(t, call, unix.EPERM)
			stop, err := paceByThread(newPacer(nil))
			if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), name) {
				t.Error(err)
			}
			if err == nil {
				stop()
			}
		})
	}
}

// TestPacerInterrupted: a signal that comes while a pacer tries whether it can wait doesn't fail the run.
func TestPacerInterrupted(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	sandbox.Refuse(t, unix.SYS_PPOLL, unix.EINTR)
	stop, err := paceByThread(newPacer(nil))
	if err != nil {
		t.Fatal(err)
	}
	stop()
}

// TestSchedule: operations come at the rate of their direction, at even intervals or, if poisson, at random ones, whose
// mean square is twice the square of their mean.
func TestSchedule(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Spec)
		ios    [ops]float64 // per second
	}{
		{"iops", func(s *Spec) { s.RateIOPS = [ops]int{1000, 1000} }, [ops]float64{1000, 1000}},
		{"one for each", func(s *Spec) { s.RateIOPS = [ops]int{3000, 50} }, [ops]float64{3000, 50}},
		{"bytes", func(s *Spec) { s.Rate = [ops]int64{4096 * 500, 4096 * 250} }, [ops]float64{500, 250}},
		{"split", func(s *Spec) {
			s.BS[Read] = Split{{Bytes: 4096, Percent: 50}, {Bytes: 12288, Percent: 50}}
			s.Rate = [ops]int64{8192 * 500, 4096 * 250}
		}, [ops]float64{500, 250}},
		{"poisson", func(s *Spec) { s.RateIOPS = [ops]int{1000, 500}; s.Poisson = true }, [ops]float64{1000, 500}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spec("randrw")
			c.change(&s)
			a, b := newSchedule(&s, 0), newSchedule(&s, 0)
			var n, squares [ops]float64
			var before [ops]int64
			last := int64(0)
			const seconds = 20
			all := 0.0
			for _, ios := range c.ios {
				all += seconds * ios
			}
			if got := float64(a.expected(seconds * int64(time.Second))); math.Abs(got-all) > all/50 {
				t.Errorf("%v are expected in %d s, want %v", got, seconds, all)
			}
			for {
				at := a.peek()
				x, y := a.next(), b.next()
				if x != y || x.due != at {
					t.Fatalf("two schedules of one spec say %+v and %+v, after %d", x, y, at)
				}
				if x.due < last {
					t.Fatalf("due at %d after %d", x.due, last)
				}
				if x.due > seconds*int64(time.Second) {
					break
				}
				interval := float64(x.due-before[x.op]) / float64(time.Second)
				squares[x.op] += interval * interval
				last, before[x.op] = x.due, x.due
				n[x.op]++
			}
			for op, want := range c.ios {
				if got := n[op] / seconds; math.Abs(got-want) > want/20 {
					t.Errorf("%v: %v a second, want %v", Op(op), got, want)
				}
				if got := squares[op] * want / seconds; (s.Poisson && want > 0 && math.Abs(got-2) > 0.2) || (!s.Poisson && got > 1.3) {
					t.Errorf("%v: the mean square of intervals is %v of their mean's square", Op(op), got)
				}
			}
		})
	}
}

// TestDueLate: an operation that is due later than nanoseconds can say is never due. Trims may be of terabytes.
func TestDueLate(t *testing.T) {
	s := spec("trim")
	s.BS[Trim], s.Rate[Trim] = Fixed(16<<40), 1
	plan := newSchedule(&s, 0)
	if a := plan.next(); a.due != 0 {
		t.Errorf("the first is due at %d", a.due)
	}
	if at, a := plan.peek(), plan.next(); at != endless || a.due != at {
		t.Errorf("the second is due at %d and %d, want %d", at, a.due, endless)
	}
}

// With a rate for one direction the other keeps the depth, and the first comes at its rate; written data is still
// checked.
func TestOneRate(t *testing.T) { synctest.Test(t, testOneRate) }

func testOneRate(t *testing.T) {
	for rated, other := range map[Op]Op{Read: Write, Write: Read} {
		s := spec("randrw")
		s.IODepth, s.Runtime, s.RateIOPS[rated], s.Verify = 4, time.Second, 100, true
		d := &fakeDevice{delay: time.Millisecond, data: make([]byte, fakeSize)}
		res := mustRun(t, d, s)
		if n := res.Ops[rated].IOs; n < 99 || n > 101 {
			t.Errorf("%v: %d a second, want 100", rated, n)
		}
		if n := res.Ops[other].IOs; n < 3890 || n > 3910 {
			t.Errorf("%v: %d a second, want what remains of 4 each ms", other, n)
		}
		// An operation that is due waits for at most one of the others.
		if worst := time.Duration(res.Ops[rated].Latency.Max()); worst > 2*time.Millisecond || d.deepest.Load() != 4 || res.Unstarted > 0 {
			t.Errorf("%v: the longest took %v, %d under way, %d not begun", rated, worst, d.deepest.Load(), res.Unstarted)
		}
	}
}

// Rates replace the shares of a mix, but a direction without any share has no operations, as in fio: rwmixread=100
// never writes.
func TestRatesOfMixOfOne(t *testing.T) { synctest.Test(t, testRatesOfMixOfOne) }

func testRatesOfMixOfOne(t *testing.T) {
	for _, c := range []struct {
		reads int
		rates [ops]int
		paced bool
		want  [ops]uint64
	}{
		{100, [ops]int{Read: 100, Write: 100}, true, [ops]uint64{Read: 64}},
		{0, [ops]int{Read: 100, Write: 100}, true, [ops]uint64{Write: 64}},
		{100, [ops]int{Read: 100}, true, [ops]uint64{Read: 64}},
		{100, [ops]int{Write: 100}, false, [ops]uint64{Read: 64}},
		{0, [ops]int{Read: 100}, false, [ops]uint64{Write: 64}},
		{99, [ops]int{Read: 100, Write: 100}, true, [ops]uint64{Read: 32, Write: 32}},
	} {
		s := spec("randrw")
		s.RWMixRead, s.RateIOPS, s.NumberIOs = c.reads, c.rates, 64
		if s.Paced() != c.paced {
			t.Errorf("rwmixread=%d at rates of %v: paced %v", c.reads, c.rates, s.Paced())
		}
		res := mustRun(t, &fakeDevice{}, s)
		for op, want := range c.want {
			if n := res.Ops[op].IOs; n != want {
				t.Errorf("rwmixread=%d at rates of %v: %v: %d operations, want %d", c.reads, c.rates, Op(op), n, want)
			}
		}
	}
}

// Jobs with rates of their own don't delay each other: each operation begins when it is due.
func TestRatesOfSeveral(t *testing.T) { synctest.Test(t, testRatesOfSeveral) }

func testRatesOfSeveral(t *testing.T) {
	rare, often := spec("randread"), spec("randread")
	rare.RateIOPS[Read], rare.Runtime = 10, time.Second
	often.RateIOPS[Read], often.Runtime = 1000, time.Second
	res, err := Run(t.Context(), &fakeDevice{}, []Spec{rare, often}, Options{pace: paceByTimer})
	if err != nil {
		t.Fatal(err)
	}
	for i := range res.Jobs {
		j := &res.Jobs[i]
		m, rate := &j.Ops[Read], j.Spec.RateIOPS[Read]
		if n, worst := int(m.IOs), time.Duration(m.Latency.Max()); n < rate || n > rate+1 || worst > leastWait {
			t.Errorf("of %d a second %d began, %v late at most", rate, n, worst)
		}
		if j.Duration != time.Second {
			t.Errorf("at %d a second, a second took %v", rate, j.Duration)
		}
	}
}

// The operations of clones with a rate are spread evenly over time.
func TestRateOfClones(t *testing.T) {
	s := spec("randread")
	s.RateIOPS[Read], s.NumJobs = 100, 4
	for clone := range s.NumJobs {
		plan := newSchedule(&s, clone)
		for n := range 3 {
			want := time.Duration(n)*10*time.Millisecond + time.Duration(clone)*2500*time.Microsecond
			if due := time.Duration(plan.next().due); due != want {
				t.Errorf("operation %d of clone %d is due at %v, want %v", n, clone, due, want)
			}
		}
	}
}

// If a device stalls for a while, every operation that was due in that time shows it, although only a few were
// outstanding: latencies count from when operations were due.
func TestNoCoordinatedOmission(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"reads":    func(*Spec) {},
		"refilled": func(s *Spec) { s.RW, s.Refill = "randwrite", true },
		"verified": func(s *Spec) { s.RW, s.Verify = "randwrite", true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testNoCoordinatedOmission(t, change) })
		})
	}
}

func testNoCoordinatedOmission(t *testing.T, change func(*Spec)) {
	const stall, slow = 150 * time.Millisecond, 10 * time.Millisecond
	open := make(chan struct{})
	time.AfterFunc(stall, func() { close(open) })
	s := spec("randread")
	s.IODepth, s.RateIOPS, s.Runtime = 2, [ops]int{Read: 2000, Write: 2000}, 400*time.Millisecond
	change(&s)
	res := mustRun(t, &fakeDevice{gate: open, data: make([]byte, fakeSize)}, s)
	m := res.Total()
	if m.IOs < 800 || m.IOs > 801 { // the one at the end may be due or not
		t.Errorf("%d operations of 800 that were due", m.IOs)
	}
	// Operations that were due in the first 140 of 400 ms waited longer than 10 ms; only two were outstanding.
	if fast, slower := m.Latency.Percentile(64), m.Latency.Percentile(66); fast > int64(slow) || slower <= int64(slow) {
		t.Errorf("64 of 100 operations took %v at most, 66 %v; of 65 it is to be %v",
			time.Duration(fast), time.Duration(slower), slow)
	}
	if worst := time.Duration(m.Latency.Max()); worst != stall {
		t.Errorf("the longest took %v, want %v", worst, stall)
	}
}

// Operations that the device can't keep up with are reported: those that were due, if the job would have begun them.
func TestUnstarted(t *testing.T) { synctest.Test(t, testUnstarted) }

func testUnstarted(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit func(*Spec)
		due   uint64
	}{
		{"a runtime", func(*Spec) {}, 1000},
		{"a number of operations", func(s *Spec) { s.NumberIOs = 30 }, 30},
		{"a number of operations that aren't due", func(s *Spec) { s.NumberIOs = 2000 }, 1000},
		{"a size", func(s *Spec) { s.Size = 40 * 4096 }, 40},
		{"a size, with a block for writes that it doesn't do", func(s *Spec) { s.Size, s.BS[Write] = 40*4096, Fixed(512) }, 40},
		{"an amount and a half operation", func(s *Spec) { s.IOSize = 40*4096 + 2048 }, 41},
		{"both", func(s *Spec) { s.NumberIOs, s.Size = 50, 40*4096 }, 40},
	} {
		d := &fakeDevice{delay: 10 * time.Millisecond}
		s := spec("randread")
		s.IODepth, s.RateIOPS[Read], s.Runtime = 1, 10_000, 100*time.Millisecond
		c.limit(&s)
		res := mustRun(t, d, s)
		// The eleventh may or may not begin as the time ends.
		if done := res.Ops[Read].IOs; done < 10 || done > 11 || done+res.Unstarted < c.due || done+res.Unstarted > c.due+1 {
			t.Errorf("%s: %d done and %d not started of %d due", c.name, done, res.Unstarted, c.due)
		}
		if res.Duration != s.Runtime { // what is under way in the end was due before
			t.Errorf("%s: measured for %v, want %v", c.name, res.Duration, s.Runtime)
		}
	}
}

// The backlog of even the highest rate can be counted, also added up over several jobs.
func TestUnstartedOfHighest(t *testing.T) {
	s := spec("randread")
	s.RateIOPS[Read] = math.MaxInt64
	for _, span := range []time.Duration{3 * time.Second, 1000 * time.Hour} {
		n := newSchedule(&s, 0).expected(int64(span))
		g := Group([]JobResult{{Spec: &s, Unstarted: n}, {Spec: &s, Unstarted: n}, {Spec: &s, Unstarted: n}, {Spec: &s, Unstarted: n}})
		if int64(g.Unstarted) <= 0 {
			t.Errorf("after %v %d operations of a job had not begun, and %d of four", span, n, int64(g.Unstarted))
		}
	}
}

// With a rate and a size, the job ends when it has moved that size.
func TestRateOnceThrough(t *testing.T) { synctest.Test(t, testRateOnceThrough) }

func testRateOnceThrough(t *testing.T) {
	s := spec("randwrite")
	s.RateIOPS[Write], s.NumJobs = 5000, 2
	res, err := Run(context.Background(), &fakeDevice{}, []Spec{s}, Options{pace: paceByTimer})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range res.Jobs {
		if j.Ops[Write].Bytes != fakeSize {
			t.Errorf("job %d wrote %d bytes of %d", j.Clone, j.Ops[Write].Bytes, fakeSize)
		}
		if d := j.Duration; d < 51*time.Millisecond || d > 52*time.Millisecond {
			t.Errorf("256 operations at 5000 a second took %v, want 51.2 ms", d)
		}
	}
}

// Every operation of a job that is limited by bytes is counted, including the first, which is due when the job
// begins rather than when that is noticed; likewise after a delay.
func TestRateCountsAll(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Millisecond} {
		s := spec("read")
		s.RateIOPS[Read], s.Size, s.Delay = 1000, 64<<10, delay
		res, err := Run(context.Background(), &fakeDevice{delay: time.Microsecond}, []Spec{s, s, s}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range res.Jobs {
			if n := res.Jobs[i].Ops[Read].IOs; n != 16 {
				t.Errorf("job %d after %v: %d operations, want 16", i, delay, n)
			}
		}
	}
}

// A job that is over before anybody notices the end of its delay still has a duration.
func TestRateOverEarly(t *testing.T) { synctest.Test(t, testRateOverEarly) }

func testRateOverEarly(t *testing.T) {
	s := spec("read")
	s.RateIOPS[Read], s.NumberIOs, s.Delay = 1000, 3, 10*time.Millisecond
	pace := func(p *pacer) (func(), error) {
		for left := p.step(); left >= 0; left = p.step() {
			time.Sleep(time.Duration(left))
		}
		return func() {}, nil
	}
	res, err := Run(context.Background(), &fakeDevice{delay: 500 * time.Microsecond}, []Spec{s}, Options{pace: pace})
	if err != nil {
		t.Fatal(err)
	}
	j := &res.Jobs[0]
	if m := &j.Ops[Read]; m.IOs != 3 || j.Duration != 3*time.Millisecond || j.IOPS(m) != 1000 {
		t.Errorf("%d operations in %v, %v a second; want 3 in 3 ms", m.IOs, j.Duration, j.IOPS(m))
	}
}

// Operations that were due and had not begun are also reported for a verified job, with a rate for all directions
// or for one.
func TestUnstartedVerified(t *testing.T) { synctest.Test(t, testUnstartedVerified) }

func testUnstartedVerified(t *testing.T) {
	for _, rate := range [][ops]int{{Read: 1000, Write: 1000}, {Write: 2000}} {
		d := &fakeDevice{delay: 10 * time.Millisecond, data: make([]byte, fakeSize)}
		s := verifySpec("randrw")
		s.IODepth, s.Runtime, s.RateIOPS = 2, time.Second, rate
		res := mustRun(t, d, s)
		// The device does 200 per second.
		if res.Unstarted < 1750 || res.Unstarted > 1850 || res.Verified == 0 {
			t.Errorf("rates %v: %d had not begun, %d bytes verified", rate, res.Unstarted, res.Verified)
		}
	}
}

// What was written at a rate is read back as fast as possible, at the job's depth.
func TestRateOfReadingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := verifySpec("write")
		s.RateIOPS[Write], s.IODepth = 256, 4
		d := &fakeDevice{delay: time.Millisecond, data: make([]byte, fakeSize)}
		res, err := runOne(d, s)
		if err != nil || res.Verified != fakeSize {
			t.Fatalf("%d bytes verified, %v", res.Verified, err)
		}
		if wrote, all := time.Second, time.Since(began); all < wrote || all > wrote+fakeSize/4096/4*time.Millisecond || d.deepest.Load() != 4 {
			t.Errorf("writing a second and reading back took %v, with %d at a time", all, d.deepest.Load())
		}
	})
}

// TestNoPace: a run that can't keep to a rate ends at once, and says why; its other jobs end, too.
func TestNoPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := errors.New("no descriptors")
		s, other := spec("read"), spec("randread")
		s.RateIOPS[Read], s.Runtime, other.Runtime = 1000, time.Minute, time.Minute
		began, d := time.Now(), &fakeDevice{delay: time.Millisecond}
		_, err := Run(t.Context(), d, []Spec{s, other}, Options{pace: func(*pacer) (func(), error) { return nil, none }})
		if took := time.Since(began); !errors.Is(err, none) || took > time.Second || d.lent.Load() != 0 || d.depth.Load() != 0 {
			t.Errorf("%v after %v, %d buffers are left, %d operations under way", err, took, d.lent.Load(), d.depth.Load())
		}
	})
}

// With a rate that is too high for operations to be counted, there are as many as possible, and the job ends in
// time.
func TestRateBeyondCounting(t *testing.T) {
	for _, change := range []func(*Spec){
		func(s *Spec) { s.RateIOPS[Read] = math.MaxInt },
		func(s *Spec) { s.RateIOPS[Read] = 1e9 },
		func(s *Spec) { s.Rate[Read], s.NumJobs = math.MaxInt64, 3 },
	} {
		s := spec("randread")
		change(&s)
		var n, unstarted uint64
		// A machine that stalls may begin none in an interval.
		for s.Runtime, s.TimeBased = 100*time.Millisecond, true; n == 0 && s.Runtime < 10*time.Second; s.Runtime *= 4 {
			res, err := Run(t.Context(), &fakeDevice{delay: time.Millisecond}, []Spec{s}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			n, unstarted = res.Jobs[0].Ops[Read].IOs, res.Jobs[0].Unstarted
		}
		if n == 0 || unstarted == 0 {
			t.Errorf("%+v: %d operations, and %d that were due have not begun", s.RateIOPS, n, unstarted)
		}
	}
}

// While a job is behind its rate, completions start its operations and the pacer sleeps.
func TestPacerSleeps(t *testing.T) { synctest.Test(t, testPacerSleeps) }

func testPacerSleeps(t *testing.T) {
	steps := 0
	pace := func(p *pacer) (func(), error) {
		return pacing(func() int64 { steps++; return p.step() })
	}
	s := spec("randread")
	s.IODepth, s.RateIOPS[Read], s.Runtime, s.TimeBased = 1, 1_000_000, time.Second, true
	if _, err := Run(t.Context(), &fakeDevice{delay: 20 * time.Microsecond}, []Spec{s}, Options{pace: pace}); err != nil {
		t.Fatal(err)
	}
	if steps > 1100 {
		t.Errorf("the pacer looked %d times within a second, want about 1000", steps)
	}
}

// The pacer is there again when the job has caught up: only what was due meanwhile is late.
func TestPacerWakes(t *testing.T) { synctest.Test(t, testPacerWakes) }

func testPacerWakes(t *testing.T) {
	const each, stall = 10 * time.Microsecond, 550 * time.Microsecond
	d := &fakeDevice{delay: each}
	ended := 0
	d.ends = func(*IO) {
		if ended++; ended == 10 {
			time.Sleep(stall - each)
		}
	}
	s := spec("randread")
	s.IODepth, s.RateIOPS[Read], s.Runtime, s.TimeBased = 1, 10_000, 10*time.Millisecond, true
	m := &mustRun(t, d, s).Ops[Read]
	if m.IOs < 100 || m.IOs > 101 {
		t.Fatalf("%d operations, want 100", m.IOs)
	}
	// One stands still, five are due by its end, and one more while these are done.
	if p := time.Duration(m.Latency.Percentile(92)); p > each+2*leastWait {
		t.Errorf("92 of 100 operations took %v at most, want %v", p, each)
	}
	if worst := time.Duration(m.Latency.Max()); worst != stall {
		t.Errorf("the longest took %v, want %v", worst, stall)
	}
}

// Nor does a job that is behind its rate end later than its operations.
func TestPacerEnds(t *testing.T) {
	for name, limit := range map[string]func(*Spec){
		"operations": func(s *Spec) { s.NumberIOs, s.IOSize = 10, 1<<30 },
		"bytes":      func(s *Spec) { s.Size = 10 * 4096 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const each = 20 * time.Microsecond
				s := spec("randread")
				s.IODepth, s.RateIOPS[Read] = 1, 10_000_000
				limit(&s)
				res := mustRun(t, &fakeDevice{delay: each}, s)
				if n := res.Ops[Read].IOs; n != 10 || res.Duration > 10*each+2*leastWait {
					t.Errorf("%d operations in %v, want 10 in %v", n, res.Duration, 10*each)
				}
			})
		})
	}
}
