package loadgen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestErrorEndsTheRun(t *testing.T) {
	for _, rate := range []int{0, 10000} {
		d := &fakeDevice{failAt: 20}
		s, other := spec("randwrite"), spec("randread")
		s.Runtime, other.Runtime = time.Minute, time.Minute
		s.RateIOPS = [ops]int{Write: rate}
		res, err := Run(context.Background(), d, []Spec{s, other}, Options{})
		if err == nil || !strings.Contains(err.Error(), "made to fail") {
			t.Fatalf("error %v, want the operation's", err)
		}
		if n := res.Jobs[0].Errors + res.Jobs[1].Errors; n != 1 {
			t.Errorf("%d errors counted, want 1", n)
		}
	}
}

// TestMaxLatency: a measured operation that takes longer than its direction may ends the run; it counts, as in fio.
func TestMaxLatency(t *testing.T) {
	for _, c := range []struct {
		rw   string
		most [ops]time.Duration
		rate int
		ramp time.Duration
		late Op // Flush: none
	}{
		{"randread", [ops]time.Duration{Read: 3 * time.Millisecond}, 0, 0, Flush},
		{"randread", [ops]time.Duration{Read: 3*time.Millisecond - 1}, 0, 0, Read},
		{"randread", [ops]time.Duration{Write: 1, Trim: 1}, 0, 0, Flush},
		{"randrw", [ops]time.Duration{Write: time.Millisecond}, 0, 0, Write},
		{"randtrim", [ops]time.Duration{Trim: time.Millisecond}, 0, 0, Trim},
		{"randread", [ops]time.Duration{Read: time.Millisecond}, 100, 0, Read},
		{"randwrite", [ops]time.Duration{Write: time.Millisecond}, 0, time.Minute, Flush}, // it isn't measured
	} {
		synctest.Test(t, func(t *testing.T) {
			s := spec(c.rw)
			s.MaxLatency, s.RampTime, s.Runtime, s.Size, s.Fsync = c.most, c.ramp, 100*time.Millisecond, 0, 2
			s.RateIOPS = [ops]int{c.rate, c.rate, c.rate}
			if c.ramp > 0 {
				s.Size, s.Runtime = 64<<10, 0
			}
			res, err := Run(t.Context(), &fakeDevice{delay: 3 * time.Millisecond}, []Spec{s}, Options{pace: paceByTimer})
			var late *LatencyError
			if found := errors.As(err, &late); found != (c.late != Flush) || !found && err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			if late == nil {
				return
			}
			j := &res.Jobs[0]
			if late.Op != c.late || late.Took != 3*time.Millisecond || late.Length != 4096 || late.Allowed != c.most[c.late] {
				t.Errorf("%+v: %+v", c, late)
			}
			if j.Duration > 20*time.Millisecond || j.Errors == 0 || j.Ops[c.late].IOs < j.Errors {
				t.Errorf("%+v: it ended after %v, with %d errors of %d operations", c, j.Duration, j.Errors, j.Ops[c.late].IOs)
			}
			if want := " of 4096 bytes at offset "; !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "took 3ms, and max_latency is "+late.Allowed.String()) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// failingDevice fails each operation, the first one first.
type failingDevice struct{ fakeDevice }

func (d *failingDevice) OpenQueue(int) (Queue, error) {
	return failingQueue{(*fakeQueue)(&d.fakeDevice)}, nil
}

type failingQueue struct{ *fakeQueue }

func (q failingQueue) Submit(io *IO) {
	n := q.count.Add(1)
	time.AfterFunc(time.Duration(n)*time.Millisecond, func() {
		io.Err = fmt.Errorf("operation %d failed", n)
		io.Done(io)
	})
}

// Of several operations that fail the first is reported, and all are counted.
func TestFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		res, err := Run(t.Context(), &failingDevice{}, []Spec{spec("read")}, Options{})
		if err == nil || err.Error() != "operation 1 failed" {
			t.Errorf("the error is %v", err)
		}
		if j := &res.Jobs[0]; j.Errors != 8 || j.Ops[Read].IOs != 0 {
			t.Errorf("%d errors of the depth of 8, %d operations that succeeded", j.Errors, j.Ops[Read].IOs)
		}
	})
}

// scarceDevice has buffers for some operations.
type scarceDevice struct {
	fakeDevice

	buffers int64
}

func (d *scarceDevice) OpenQueue(int) (Queue, error) {
	return scarceQueue{(*fakeQueue)(&d.fakeDevice), d}, nil
}

type scarceQueue struct {
	*fakeQueue

	d *scarceDevice
}

var errScarce = errors.New("no more memory")

func (q scarceQueue) Alloc(n int) ([]byte, error) {
	if q.lent.Load() == q.d.buffers {
		return nil, errScarce
	}
	return q.fakeQueue.Alloc(n)
}

// A run whose buffers can't all be had doesn't begin, and gives back those that it has; the error says which job it
// was.
func TestNoMemory(t *testing.T) {
	d := &scarceDevice{buffers: 12}
	s := spec("read")
	s.NumJobs = 2
	_, err := Run(t.Context(), d, []Spec{s}, Options{})
	if !errors.Is(err, errScarce) || !strings.HasPrefix(err.Error(), "test: job 1: ") {
		t.Errorf("the error is %v", err)
	}
	if lent, ios := d.lent.Load(), d.count.Load(); lent != 0 || ios != 0 {
		t.Errorf("%d buffers were not freed, %d operations began", lent, ios)
	}
}

func TestCancel(t *testing.T) {
	for _, rate := range []int{0, 1000} {
		ctx, cancel := context.WithCancel(context.Background())
		d := &fakeDevice{seen: func(*IO) { cancel() }}
		s := spec("randread")
		s.Runtime = time.Hour
		s.RateIOPS = [ops]int{Read: rate}
		if _, err := Run(ctx, d, []Spec{s}, Options{}); err != nil {
			t.Fatal(err)
		}
	}
}

// Operations outstanding when a run is interrupted end before it, and count.
func TestCancelWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		d := &fakeDevice{delay: time.Second}
		s := spec("randread")
		s.Runtime = time.Hour
		res, err := Run(ctx, d, []Spec{s}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if j := &res.Jobs[0]; d.depth.Load() != 0 || j.Ops[Read].IOs != 16 || j.Duration != 2*time.Second {
			t.Errorf("%d operations in %v, want 16 in 2s; %d are left", j.Ops[Read].IOs, j.Duration, d.depth.Load())
		}
	})
}
