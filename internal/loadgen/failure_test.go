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
