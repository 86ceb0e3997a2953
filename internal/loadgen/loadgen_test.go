package loadgen

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	fakeSize  = 1 << 20
	fakeBlock = 512
)

// fakeDevice answers at once, or after a delay from another goroutine.
type fakeDevice struct {
	delay  time.Duration
	failAt int64 // operation that fails, 0 for none
	seen   func(*IO)

	count   atomic.Int64
	depth   atomic.Int64
	deepest atomic.Int64
	lent    atomic.Int64
}

func (d *fakeDevice) Size() int64                  { return fakeSize }
func (d *fakeDevice) BlockSize() int               { return fakeBlock }
func (d *fakeDevice) OpenQueue(int) (Queue, error) { return (*fakeQueue)(d), nil }

type fakeQueue fakeDevice

func (q *fakeQueue) Alloc(n int) ([]byte, error) { q.lent.Add(1); return make([]byte, n), nil }
func (q *fakeQueue) Free([]byte)                 { q.lent.Add(-1) }

func (q *fakeQueue) Submit(io *IO) {
	if d := q.depth.Add(1); d > q.deepest.Load() {
		q.deepest.Store(d)
	}
	n := q.count.Add(1)
	io.Err = nil
	if n == q.failAt {
		io.Err = errors.New("made to fail")
	}
	if q.seen != nil {
		q.seen(io)
	}
	end := func() { q.depth.Add(-1); io.Done(io) }
	if q.delay > 0 {
		time.AfterFunc(q.delay, end)
		return
	}
	go end()
}

func spec(rw string) Spec {
	return Spec{RW: rw, RWMixRead: 70, BS: 4096, IODepth: 8, NumJobs: 1, Seed: 1}
}

func TestSequentialRunsOnceThrough(t *testing.T) {
	var offsets [fakeSize / 4096]atomic.Int32
	d := &fakeDevice{seen: func(io *IO) { offsets[io.Offset/4096].Add(1) }}
	res, err := Run(context.Background(), d, spec("read"), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range offsets {
		if n := offsets[i].Load(); n != 1 {
			t.Fatalf("block %d was read %d times, want once", i, n)
		}
	}
	if got := res.Ops[Read]; got.IOs != fakeSize/4096 || got.Bytes != fakeSize {
		t.Errorf("%d operations, %d bytes; want %d, %d", got.IOs, got.Bytes, fakeSize/4096, fakeSize)
	}
	if res.Ops[Write].IOs != 0 {
		t.Errorf("a read job wrote %d times", res.Ops[Write].IOs)
	}
	if n := d.lent.Load(); n != 0 {
		t.Errorf("%d buffers were not freed", n)
	}
}

func TestDepthIsKept(t *testing.T) {
	d := &fakeDevice{delay: time.Millisecond}
	s := spec("randread")
	s.NumJobs, s.Runtime = 2, 30*time.Millisecond
	if _, err := Run(context.Background(), d, s, 0, nil); err != nil {
		t.Fatal(err)
	}
	if got := d.deepest.Load(); got != 16 {
		t.Errorf("at most %d outstanding, want iodepth × numjobs = 16", got)
	}
}

func TestMixAndRange(t *testing.T) {
	var bad atomic.Int64
	d := &fakeDevice{seen: func(io *IO) {
		if io.Offset < 8192 || io.Offset+int64(len(io.Buf)) > 8192+65536 || io.Offset%4096 != 0 {
			bad.Add(1)
		}
	}}
	s := spec("randrw")
	s.Offset, s.Size, s.Runtime = 8192, 65536, 50*time.Millisecond
	res, err := Run(context.Background(), d, s, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if bad.Load() != 0 {
		t.Errorf("%d operations outside offset and size", bad.Load())
	}
	r, w := float64(res.Ops[Read].IOs), float64(res.Ops[Write].IOs)
	if share := r / (r + w); share < 0.6 || share > 0.8 {
		t.Errorf("%.2f of %v operations are reads, want about 0.70", share, r+w)
	}
}

func TestErrorEndsTheRun(t *testing.T) {
	d := &fakeDevice{failAt: 20}
	s := spec("randwrite")
	s.Runtime = time.Minute
	res, err := Run(context.Background(), d, s, 0, nil)
	if err == nil || !strings.Contains(err.Error(), "made to fail") {
		t.Fatalf("error %v, want the operation's", err)
	}
	if res.Errors != 1 {
		t.Errorf("%d errors counted, want 1", res.Errors)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	d := &fakeDevice{seen: func(*IO) { cancel() }}
	s := spec("randread")
	s.Runtime = time.Hour
	if _, err := Run(ctx, d, s, 0, nil); err != nil {
		t.Fatal(err)
	}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		change func(*Spec)
		field  string
	}{
		{func(s *Spec) { s.RW = "readrand" }, "rw="},
		{func(s *Spec) { s.BS = 1000 }, "bs="},
		{func(s *Spec) { s.BS = 0 }, "bs="},
		{func(s *Spec) { s.RWMixRead = 101 }, "rwmixread="},
		{func(s *Spec) { s.IODepth = 0 }, "iodepth="},
		{func(s *Spec) { s.NumJobs = 1 << 30 }, "numjobs="},
		{func(s *Spec) { s.Offset = 100 }, "offset="},
		{func(s *Spec) { s.Size = fakeSize + 512 }, "size="},
		{func(s *Spec) { s.Size = 512 }, "size="},
		{func(s *Spec) { s.Runtime = -1 }, "runtime"},
	} {
		s := spec("randread")
		tc.change(&s)
		if err := s.Validate(fakeSize, fakeBlock); err == nil || !strings.Contains(err.Error(), tc.field) {
			t.Errorf("%+v: error %v, want one that names %s", s, err, tc.field)
		}
	}
}
