package loadgen

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// serialDevice executes operations one after another, one millisecond each, so that an operation takes as many
// milliseconds as there are operations outstanding.
type serialDevice struct{ fakeDevice }

func (d *serialDevice) OpenQueue(int) (Queue, error) {
	q := &serialQueue{fakeQueue: (*fakeQueue)(&d.fakeDevice), ch: make(chan *IO, 64)}
	go func() {
		for io := range q.ch {
			time.Sleep(time.Millisecond)
			q.depth.Add(-1)
			io.Done(io)
		}
	}()
	return q, nil
}

type serialQueue struct {
	*fakeQueue
	ch   chan *IO
	free int
}

func (q *serialQueue) Submit(io *IO) {
	q.begin()
	q.move(io)
	io.Err = nil
	q.ch <- io
}

func (q *serialQueue) Alloc(n int) ([]byte, error) { q.free++; return make([]byte, n), nil }

func (q *serialQueue) Free([]byte) {
	if q.free--; q.free == 0 {
		close(q.ch)
	}
}

// seeking returns the spec of a job that seeks a depth.
func seeking(rw string, target time.Duration) Spec {
	s := spec(rw)
	s.IODepth, s.LatencyTarget, s.LatencyWindow = 32, target, 100*time.Millisecond
	return s
}

// TestSeek: a job finds the greatest depth that meets the latency target, and its figures are those of that depth
// alone.
func TestSeek(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		target          time.Duration
		iodepth         int
		depth, measured int
	}{
		{500 * time.Microsecond, 32, 0, 1}, {1 * ms, 32, 1, 1}, {2 * ms, 32, 2, 2}, {3 * ms, 32, 3, 3}, {5 * ms, 32, 5, 5},
		{8 * ms, 32, 8, 8}, {9500 * time.Microsecond, 32, 9, 9}, {31 * ms, 32, 31, 31}, {32 * ms, 32, 32, 32},
		{time.Second, 32, 32, 32}, {time.Second, 23, 23, 23}, {20 * ms, 23, 20, 20}, {5 * ms, 1, 1, 1}, {500 * time.Microsecond, 1, 0, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := seeking("randread", c.target)
			s.IODepth = c.iodepth
			d := &serialDevice{}
			res, err := Run(context.Background(), d, []Spec{s}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got, most := int(d.deepest.Load()), min(2*max(c.depth, 1), c.iodepth); got > most {
				t.Errorf("%v of %d: %d were outstanding, although the greatest depth to try is %d", c.target, c.iodepth, got, most)
			}
			j, m := &res.Jobs[0], &res.Jobs[0].Ops[Read]
			if !j.Sought || j.SoughtDepth != c.depth {
				t.Errorf("%v of %d: found depth %d (%v), want %d", c.target, c.iodepth, j.SoughtDepth, j.Sought, c.depth)
			}
			each := int64(c.measured) * int64(ms)
			if m.Latency.Min() != each || m.Latency.Max() != each {
				t.Errorf("%v: measured %d to %d ns, want %d: those of another depth aren't its own", c.target, m.Latency.Min(), m.Latency.Max(), each)
			}
			if j.Duration != s.LatencyWindow || m.IOs != uint64(s.LatencyWindow/ms) || j.IOPS(m) != 1000 {
				t.Errorf("%v: %d operations in %v, want 100 in a window of %v", c.target, m.IOs, j.Duration, s.LatencyWindow)
			}
		})
	}
}

// TestSeekPercentile: the remaining percentage of operations may take longer.
func TestSeekPercentile(t *testing.T) {
	for percent, depth := range map[float64]int{0: 0, 100: 0, 99: 0, 95: 0, 89: 32, 50: 32} {
		synctest.Test(t, func(t *testing.T) {
			s := seeking("randread", 10*time.Millisecond)
			s.LatencyPercentile, s.LatencyWindow = percent, time.Second
			d := &slowTenth{}
			d.delay = time.Millisecond
			res, err := Run(context.Background(), d, []Spec{s}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if j := &res.Jobs[0]; !j.Sought || j.SoughtDepth != depth {
				t.Errorf("%v%%: found depth %d (%v), want %d", percent, j.SoughtDepth, j.Sought, depth)
			}
		})
	}
}

// slowTenth takes 20 ms for one operation of ten.
type slowTenth struct {
	fakeDevice
	n int
}

func (d *slowTenth) OpenQueue(int) (Queue, error) { return (*slowTenthQueue)(d), nil }

type slowTenthQueue slowTenth

func (q *slowTenthQueue) Alloc(n int) ([]byte, error) { return make([]byte, n), nil }
func (q *slowTenthQueue) Free([]byte)                 {}

func (q *slowTenthQueue) Submit(io *IO) {
	q.mu.Lock()
	q.n++
	took := q.delay
	if q.n%10 == 0 {
		took = 20 * time.Millisecond
	}
	q.mu.Unlock()
	time.AfterFunc(took, func() { io.Done(io) })
}

// TestSeekEnds: whatever else ends a job ends the search, and what was found until then is reported.
func TestSeekEnds(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		change func(*Spec)
		depth  int
		took   time.Duration
	}{
		"runtime":    {func(s *Spec) { s.Runtime = 350 * ms }, 4, 350*ms + 8*ms},
		"number_ios": {func(s *Spec) { s.NumberIOs = 150 }, 1, 150 * ms},
		"size":       {func(s *Spec) { s.Size = 150 * 4096 }, 1, 150 * ms},
		"ramp_time":  {func(s *Spec) { s.RampTime, s.Runtime = 200*ms, 150*ms }, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := seeking("randread", 9*ms)
				c.change(&s)
				res, err := Run(context.Background(), &serialDevice{}, []Spec{s}, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if j := &res.Jobs[0]; j.Sought || j.SoughtDepth != c.depth || c.took > 0 && (j.Duration < c.took-10*ms || j.Duration > c.took+2*ms) {
					t.Errorf("found depth %d (%v) in %v, want %d, not all tried, in %v", j.SoughtDepth, j.Sought, j.Duration, c.depth, c.took)
				}
			})
		})
	}
}

// TestSeekOthers: each clone seeks by itself, in parallel with jobs that don't; writes are verified, and trims are
// followed by their writes.
func TestSeekOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := seeking("randwrite", 5*time.Millisecond), spec("read")
		a.NumJobs, a.Verify, a.Size = 2, true, fakeSize/2
		a.Runtime, a.TimeBased = time.Minute, true
		b.LogEvery = time.Second
		c := seeking("trimwrite", 6*time.Millisecond)
		c.Offset = fakeSize / 2
		d := &serialDevice{}
		d.data = make([]byte, fakeSize)
		res, err := Run(context.Background(), d, []Spec{a, b, c}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{5, 5, 0, 6} {
			if j := &res.Jobs[i]; j.SoughtDepth != want || j.Sought != (want > 0) {
				t.Errorf("job %d found depth %d (%v), want %d", i, j.SoughtDepth, j.Sought, want)
			}
		}
		if g := Group(res.Jobs[:2]); g.SoughtDepth != 5 || !g.Sought || g.Verified == 0 || g.Ops[Write].IOs != 200 {
			t.Errorf("together: depth %d (%v), %d bytes verified, %d writes; want 5, some, 200", g.SoughtDepth, g.Sought, g.Verified, g.Ops[Write].IOs)
		}
		if n := res.Jobs[2].Ops[Read].IOs; n != fakeSize/4096 {
			t.Errorf("the job beside them read %d times, want %d", n, fakeSize/4096)
		}
	})
}

// TestSeekTell: a job that sought a depth has the figures of its last window, and the processor time of that part of
// its operations.
func TestSeekTell(t *testing.T) {
	k := &seek{good: 8, over: true, since: int64(5 * time.Second), until: int64(7 * time.Second), points: 2}
	k.last[Read].IOs, k.last[Write].IOs = 30, 70
	r := JobResult{User: 8 * time.Second, System: 4 * time.Second, Duration: time.Minute, Points: make([]Point, 3)}
	r.Ops[Read].IOs, r.Ops[Write].IOs = 300, 100
	k.tell(&r)
	if r.SoughtDepth != 8 || !r.Sought || r.Ops[Read].IOs != 30 || r.Duration != 2*time.Second || len(r.Points) != 1 ||
		r.User != 2*time.Second || r.System != time.Second {
		t.Errorf("%+v", r)
	}
}

func TestSeekWrong(t *testing.T) {
	for want, change := range map[string]func(*Spec){
		"latency_target needs a latency_window, as latency_window=1s: how long each depth is tried": func(s *Spec) { s.LatencyWindow = 0 },
		"latency_target=1ms: it is a depth that is sought; want no rate, rate_iops or thinktime":    func(s *Spec) { s.RateIOPS[Read] = 5 },
		"latency_percentile=101: want more than 0 to 100 percent":                                   func(s *Spec) { s.LatencyPercentile = 101 },
		"latency_window=-1ns: want a positive time":                                                 func(s *Spec) { s.LatencyWindow = -1 },
	} {
		s := seeking("read", time.Millisecond)
		change(&s)
		if err := s.Check(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
