package loadgen

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Entries are the measured operations, in the order in which they ended, each with its time and place.
func TestEntries(t *testing.T) { synctest.Test(t, testEntries) }

func testEntries(t *testing.T) {
	const delay, ramp = 2 * time.Millisecond, 100*time.Millisecond + time.Microsecond
	s := spec("write")
	s.IODepth, s.RampTime, s.Runtime, s.Fsync, s.LogEach = 1, ramp, 12*time.Second, 3, true
	var places []int64
	d := &fakeDevice{delay: delay, seen: func(io *IO) {
		if io.Op == Write {
			places = append(places, io.Offset)
		}
	}}
	res, err := Run(t.Context(), d, []Spec{s}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(res.Jobs[0].Entries...)
	if n := int(res.Jobs[0].Ops[Write].IOs); len(all) != n || n <= entriesAtOnce {
		t.Fatalf("%d entries of %d operations, want more than %d", len(all), n, entriesAtOnce)
	}
	places = places[len(places)-len(all):]
	last := time.Duration(0)
	for i, e := range all {
		if e.Op != Write || e.Length != 4096 || e.Latency != delay || e.Offset != places[i] {
			t.Fatalf("entry %d is %+v, of the write at %d", i, e, places[i])
		}
		// Each begins when the previous one has ended, or the flush after that.
		if step := e.End - last; i > 0 && step != delay && step != 2*delay {
			t.Fatalf("entry %d is %v after the one before", i, step)
		}
		last = e.End
	}
	if first := all[0].End; first > 2*delay || last > s.Runtime+delay || last < s.Runtime-2*delay {
		t.Errorf("entries from %v to %v of %v", first, last, s.Runtime)
	}
	s.LogEach = false
	if res, err = Run(t.Context(), d, []Spec{s}, Options{}); err != nil || res.Jobs[0].Entries != nil {
		t.Errorf("%v, and %d pieces of entries that nobody asked for", err, len(res.Jobs[0].Entries))
	}
}

// The part of an interval in which the ramp ends says nothing about a rate: it is in no sample.
func TestPointsAfterRamp(t *testing.T) { synctest.Test(t, testPointsAfterRamp) }

func testPointsAfterRamp(t *testing.T) {
	s := spec("randread")
	s.IODepth, s.RampTime, s.Runtime = 1, 199*time.Millisecond, 200*time.Millisecond
	res, err := Run(t.Context(), &fakeDevice{delay: 5 * time.Millisecond}, []Spec{s}, Options{Interval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	points := res.Jobs[0].Points
	if len(points) < 8 {
		t.Errorf("%d points, want one each 20 of 200 ms", len(points))
	}
	for i := range points {
		// Four every 20 ms, and one more or less at the ends of an interval.
		if p := &points[i]; p.Length != 20*time.Millisecond || p.IOs[Read] < 3 || p.IOs[Read] > 5 {
			t.Errorf("point %d: %d operations in %v", i, p.IOs[Read], p.Length)
		}
	}
}

// Nor is what follows the end of a job with a rate, while an operation that was due before is still under way.
func TestPointsAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const runtime, stall = 190 * time.Millisecond, time.Second
		s := spec("randread")
		s.RateIOPS[Read], s.Runtime = 1000, runtime
		open := make(chan struct{})
		time.AfterFunc(stall, func() { close(open) })
		var n atomic.Int32
		d := &fakeDevice{delay: time.Microsecond, seen: func(*IO) { n.Add(1) }, ends: func(*IO) {
			if n.Load() == 150 {
				<-open
			}
		}}
		res, err := Run(t.Context(), d, []Spec{s}, Options{pace: paceByTimer, Interval: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if j := &res.Jobs[0]; len(j.Points) != 9 || j.Ops[Read].Latency.Max() < int64(stall-runtime) {
			t.Errorf("%d points of %v, and the longest operation took %v", len(j.Points), runtime, time.Duration(j.Ops[Read].Latency.Max()))
		}
	})
}

// Each window has what ended in it, even if that is nothing; a ramp is in none.
func TestWindows(t *testing.T) { synctest.Test(t, testWindows) }

func testWindows(t *testing.T) {
	const delay = 30 * time.Millisecond
	windows := func(change func(*Spec)) []Window {
		s := spec("randread")
		s.IODepth = 1
		change(&s)
		res, err := Run(context.Background(), &fakeDevice{delay: delay}, []Spec{s}, Options{pace: paceByTimer})
		if err != nil {
			t.Fatal(err)
		}
		return res.Jobs[0].Windows
	}
	counts := func(all []Window) (n []uint64) {
		for _, w := range all {
			if w.Bytes[Read] != w.IOs[Read]*4096 || w.Latency[Read] != time.Duration(w.IOs[Read])*delay {
				t.Errorf("%+v", w)
			}
			n = append(n, w.IOs[Read])
		}
		return n
	}
	// Of three operations, one of which takes longer, the window has the sum, and the longest.
	n := 0
	res, err := Run(context.Background(), &fakeDevice{delay: time.Millisecond, seen: func(*IO) {
		if n++; n == 2 {
			time.Sleep(time.Millisecond)
		}
	}}, []Spec{func() Spec { s := spec("randread"); s.IODepth, s.NumberIOs, s.LogEvery = 1, 3, time.Second; return s }()}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if w := res.Jobs[0].Windows; len(w) != 1 || w[0].Longest[Read] != 2*time.Millisecond || w[0].Latency[Read] != 4*time.Millisecond {
		t.Errorf("operations of 1, 2 and 1 ms make %+v", w)
	}
	if since := time.Since(res.Jobs[0].Began); since != 4*time.Millisecond {
		t.Errorf("measuring began %v ago, want 4 ms", since)
	}
	const every = 100 * time.Millisecond
	all := windows(func(s *Spec) { s.RampTime, s.Runtime, s.LogEvery = 2*every, 3*every+every/5, every })
	// Reads end 10, 40, 70, 100, 130 … ms after the ramp. The last, after 340 ms, is in less than half a window.
	if got, want := counts(all), []uint64{3, 4, 3}; !slices.Equal(got, want) || all[2].End != 3*every || all[2].Length != every {
		t.Errorf("%v ended in windows of %v, want %v; %+v", got, every, want, all)
	}
	all = windows(func(s *Spec) { s.Runtime, s.LogEvery = 70*time.Millisecond, 20*time.Millisecond })
	if got, want := counts(all), []uint64{0, 1, 0, 1, 1}; !slices.Equal(got, want) || all[4].End != 3*delay || all[4].Length != 10*time.Millisecond {
		t.Errorf("%v ended in windows of 20 ms, want %v; %+v", got, want, all)
	}
	// Nothing ends after 130 ms, until the time is over.
	all = windows(func(s *Spec) { s.RateIOPS[Read], s.Runtime, s.LogEvery = 10, 190*time.Millisecond, 20*time.Millisecond })
	if got, want := counts(all), []uint64{0, 1, 0, 0, 0, 0, 1, 0, 0, 0}; !slices.Equal(got, want) || all[8].Length != 20*time.Millisecond || all[9].End != 190*time.Millisecond {
		t.Errorf("at a rate %v ended in windows of 20 ms, want %v; %+v", got, want, all)
	}
	all = windows(func(s *Spec) { s.Runtime, s.LogEvery = 50*time.Millisecond, time.Minute })
	if got, want := counts(all), []uint64{2}; !slices.Equal(got, want) || all[0].Length != 2*delay {
		t.Errorf("a run that is shorter than a window has %+v", all)
	}
	if all = windows(func(s *Spec) { s.Runtime = 50 * time.Millisecond }); all != nil {
		t.Errorf("nobody asked for %+v", all)
	}
}
