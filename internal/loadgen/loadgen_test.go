package loadgen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/internal/race"
)

func TestMain(m *testing.M) {
	// The clock of a bubble begins in 2000: no time is to be negative there, as none is in a program.
	epoch = time.Unix(0, 0)
	goleak.VerifyTestMain(m)
}

func spec(rw string) Spec {
	bs := Fixed(4096)
	return Spec{Name: "test", RW: rw, RWMixRead: 70, BS: [ops]Split{bs, bs, bs}, IODepth: 8, NumJobs: 1, Seed: 1}
}

// paceByTimer paces by the time of a synctest bubble.
func paceByTimer(p *pacer) (stop func(), err error) {
	end, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for left := p.step(); left >= 0; left = p.step() {
			select {
			case <-time.After(time.Duration(max(left, leastWait))):
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-over
	}, nil
}

// runOne runs s in a bubble.
func runOne(d *fakeDevice, s Spec) (*JobResult, error) {
	res, err := Run(context.Background(), d, []Spec{s}, Options{pace: paceByTimer})
	if res == nil {
		return nil, err
	}
	g := Group(res.Jobs)
	return &g, err
}

// Without a runtime a job moves its size: sequential or random, every block once.
func TestOnceThrough(t *testing.T) { synctest.Test(t, testOnceThrough) }

func testOnceThrough(t *testing.T) {
	for _, rw := range []string{"read", "randread"} {
		var offsets [fakeSize / 4096]atomic.Int32
		d := &fakeDevice{seen: func(io *IO) { offsets[io.Offset/4096].Add(1) }}
		res, err := runOne(d, spec(rw))
		if err != nil {
			t.Fatal(err)
		}
		for i := range offsets {
			if n := offsets[i].Load(); n != 1 {
				t.Fatalf("%s: block %d was read %d times, want once", rw, i, n)
			}
		}
		if got := &res.Ops[Read]; got.IOs != fakeSize/4096 || got.Bytes != fakeSize || got.Latency.Count() != got.IOs {
			t.Errorf("%s: %d operations, %d bytes; want %d, %d", rw, got.IOs, got.Bytes, fakeSize/4096, fakeSize)
		}
		if res.Ops[Write].IOs != 0 {
			t.Errorf("a %s job wrote %d times", rw, res.Ops[Write].IOs)
		}
		if n := d.lent.Load(); n != 0 {
			t.Errorf("%d buffers were not freed", n)
		}
	}
}

// A runtime is a limit if a size is given, and otherwise, or with time_based, the duration: these are fio's rules.
func TestRuntimeAndSize(t *testing.T) { synctest.Test(t, testRuntimeAndSize) }

func testRuntimeAndSize(t *testing.T) {
	for _, c := range []struct {
		change func(*Spec)
		loops  bool
	}{
		{func(s *Spec) { s.Runtime = time.Minute; s.Size = fakeSize }, false},
		{func(s *Spec) { s.Runtime = time.Minute; s.SizePercent = 50 }, false},
		{func(s *Spec) { s.Runtime = time.Minute; s.IOSize = fakeSize }, false},
		{func(s *Spec) { s.Runtime = time.Minute; s.IOPercent = 100 }, false},
		{func(s *Spec) { s.Runtime = time.Minute; s.Loops = 1 }, false},
		{func(s *Spec) { s.Runtime = 50 * time.Millisecond }, true},
		{func(s *Spec) { s.Runtime = 50 * time.Millisecond; s.Size = fakeSize; s.TimeBased = true }, true},
	} {
		s := spec("read")
		c.change(&s)
		const delay = 10 * time.Microsecond
		res, err := runOne(&fakeDevice{delay: delay}, s)
		if err != nil {
			t.Fatal(err)
		}
		switch loops := res.Ops[Read].Bytes > fakeSize; {
		case loops != c.loops:
			t.Errorf("%+v: %d bytes of %d", s, res.Ops[Read].Bytes, fakeSize)
		case s.SizePercent == 50 && res.Ops[Read].Bytes != fakeSize/2:
			t.Errorf("half of it is %d bytes", res.Ops[Read].Bytes)
		case loops && (res.Duration < s.Runtime || res.Duration > s.Runtime+delay):
			t.Errorf("measured for %v of %v", res.Duration, s.Runtime)
		}
	}
}

// Where jobs work, with percentages as in fio: both are of the whole device, the offset is rounded up to an
// operation, and the size is limited to what there is.
func TestArea(t *testing.T) {
	const size = 1000 << 10
	for _, c := range []struct {
		change     func(*Spec)
		base, span int64
	}{
		{func(*Spec) {}, 0, size},
		{func(s *Spec) { s.Offset = 8 << 10 }, 8 << 10, 992 << 10},
		{func(s *Spec) { s.OffsetPercent = 50 }, 500 << 10, 500 << 10},
		{func(s *Spec) { s.OffsetPercent = 33 }, 332 << 10, 668 << 10},
		{func(s *Spec) {
			s.OffsetPercent, s.BS[Read] = 33, Split{{Bytes: 8 << 10, Percent: 50}, {Bytes: 16 << 10, Percent: 50}}
		}, 336 << 10, 664 << 10},
		{func(s *Spec) { s.OffsetPercent, s.SizePercent = 50, 50 }, 500 << 10, 500 << 10},
		{func(s *Spec) { s.OffsetPercent, s.SizePercent = 50, 25 }, 500 << 10, 248 << 10},
		{func(s *Spec) { s.Offset, s.SizePercent = 800<<10, 50 }, 800 << 10, 200 << 10},
		{func(s *Spec) { s.OffsetPercent, s.Size = 90, 8<<10 }, 900 << 10, 8 << 10},
	} {
		s := spec("read")
		c.change(&s)
		base, span := s.area(size)
		if base != c.base || span != c.span {
			t.Errorf("%+v: %d bytes from %d on, want %d from %d on", s, span, base, c.span, c.base)
		}
		if err := s.Validate(size, 4096); err != nil {
			t.Error(err)
		}
	}
}

// A job keeps to its area.
func TestOffsetPercent(t *testing.T) {
	var reads, outside atomic.Int32
	d := &fakeDevice{seen: func(io *IO) {
		reads.Add(1)
		if io.Offset < fakeSize/2 || io.Offset+int64(len(io.Buf)) > fakeSize*3/4 {
			outside.Add(1)
		}
	}}
	for _, rw := range []string{"read", "randread"} {
		s := spec(rw)
		s.OffsetPercent, s.SizePercent = 50, 25
		if _, err := runOne(d, s); err != nil {
			t.Fatal(err)
		}
	}
	if reads.Load() != 2*fakeSize/4/4096 || outside.Load() != 0 {
		t.Errorf("%d reads, %d outside", reads.Load(), outside.Load())
	}
}

func TestDepthIsKept(t *testing.T) { synctest.Test(t, testDepthIsKept) }

func testDepthIsKept(t *testing.T) {
	d := &fakeDevice{delay: time.Millisecond}
	s := spec("randread")
	s.NumJobs, s.Runtime = 2, 30*time.Millisecond
	res, err := runOne(d, s)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.deepest.Load(); got != 16 {
		t.Errorf("at most %d outstanding, want iodepth × numjobs = 16", got)
	}
	if d := res.Depths; d[3] < d[0]+d[1]+d[2] || d[4] != 0 {
		t.Errorf("depths %v, want most operations to begin as the eighth", d)
	}
}

func TestMixAndRange(t *testing.T) { synctest.Test(t, testMixAndRange) }

func testMixAndRange(t *testing.T) {
	var bad atomic.Int64
	d := &fakeDevice{delay: 10 * time.Microsecond, seen: func(io *IO) {
		if io.Offset < 8192 || io.Offset+int64(len(io.Buf)) > 8192+65536 || io.Offset%4096 != 0 {
			bad.Add(1)
		}
	}}
	s := spec("randrw")
	s.Offset, s.Size, s.Runtime, s.TimeBased = 8192, 65536, 50*time.Millisecond, true
	res, err := runOne(d, s)
	if err != nil {
		t.Fatal(err)
	}
	if bad.Load() != 0 {
		t.Errorf("%d operations outside offset and size", bad.Load())
	}
	r, w := float64(res.Ops[Read].IOs), float64(res.Ops[Write].IOs)
	if share := r / (r + w); share < 0.69 || share > 0.71 {
		t.Errorf("%.2f of %v operations are reads, want about 0.70", share, r+w)
	}
}

func TestSplit(t *testing.T) { synctest.Test(t, testSplit) }

func testSplit(t *testing.T) {
	var sizes [ops]map[int]int
	sizes[Read], sizes[Write] = map[int]int{}, map[int]int{}
	var mu sync.Mutex
	d := &fakeDevice{delay: 10 * time.Microsecond, seen: func(io *IO) {
		mu.Lock()
		defer mu.Unlock()
		sizes[io.Op][len(io.Buf)]++
		if n := int64(len(io.Buf)); io.Offset%fakeBlock != 0 || io.Offset+n > fakeSize {
			t.Errorf("%d bytes at %d", n, io.Offset)
		}
	}}
	for _, rw := range []string{"rw", "randrw"} {
		s := spec(rw)
		s.BS[Read], s.BS[Write] = Split{{Bytes: 4096, Percent: 75}, {Bytes: 16384, Percent: 25}}, Fixed(65536)
		s.Runtime, s.RWMixRead = 100*time.Millisecond, 50
		if _, err := runOne(d, s); err != nil {
			t.Fatal(err)
		}
	}
	small, large := float64(sizes[Read][4096]), float64(sizes[Read][16384])
	if share := small / (small + large); share < 0.74 || share > 0.76 || len(sizes[Read]) != 2 {
		t.Errorf("reads of %v, want 75%% of 4096 and 25%% of 16384", sizes[Read])
	}
	if len(sizes[Write]) != 1 || sizes[Write][65536] == 0 {
		t.Errorf("writes of %v, want 65536 bytes each", sizes[Write])
	}
}

// One pass through a range is just that even if sizes differ: every byte comes once for each job, including the
// last ones.
func TestOnceThroughSplit(t *testing.T) { synctest.Test(t, testOnceThroughSplit) }

func testOnceThroughSplit(t *testing.T) {
	for seed := range uint64(20) {
		var mu sync.Mutex
		var times [fakeSize / 4096]int
		d := &fakeDevice{delay: time.Millisecond, seen: func(io *IO) {
			mu.Lock()
			defer mu.Unlock()
			for at := io.Offset; at < io.Offset+int64(len(io.Buf)); at += 4096 {
				times[at/4096]++
			}
		}}
		s := spec("write")
		s.BS[Write], s.NumJobs, s.Seed = Split{{Bytes: 4096, Percent: 50}, {Bytes: 65536, Percent: 50}, {Bytes: 8192, Percent: 0}}, 1+int(seed%2), seed
		if seed >= 10 {
			s.BS[Write] = Range(4096, 60<<10)
		}
		res, err := runOne(d, s)
		if err != nil || res.Ops[Write].Bytes != uint64(s.NumJobs)*fakeSize {
			t.Fatalf("%d bytes, %v; want %d times %d", res.Ops[Write].Bytes, err, s.NumJobs, fakeSize)
		}
		for i, n := range times {
			if n != s.NumJobs {
				t.Fatalf("seed %d: block %d was written %d times by %d jobs", seed, i, n, s.NumJobs)
			}
		}
	}
}

// The specs of a run are run in parallel, each for its own time, with its own results.
func TestSeveralSpecs(t *testing.T) { synctest.Test(t, testSeveralSpecs) }

func testSeveralSpecs(t *testing.T) {
	a, b := spec("randread"), spec("write")
	a.NumJobs, a.Runtime = 3, 300*time.Millisecond
	b.Runtime, b.RampTime = 20*time.Millisecond, 20*time.Millisecond
	d := &fakeDevice{delay: 100 * time.Microsecond}
	res, err := Run(context.Background(), d, []Spec{a, b}, Options{Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Jobs) != 4 || res.Jobs[2].Clone != 2 || res.Jobs[2].Spec == res.Jobs[3].Spec {
		t.Fatalf("%d results, want three of the first spec and one of the second", len(res.Jobs))
	}
	first, second := res.Jobs[0].Duration-a.Runtime, res.Jobs[3].Duration-b.Runtime
	if first < 0 || first > d.delay || second < 0 || second > d.delay {
		t.Errorf("measured for %v and %v more than the runtimes, want what was under way in the end, %v", first, second, d.delay)
	}
	if res.Jobs[0].Ops[Write].IOs != 0 || res.Jobs[3].Ops[Read].IOs != 0 || res.Jobs[3].Ops[Write].IOs == 0 {
		t.Errorf("directions are mixed up: %d reads, %d writes; %d, %d in %v",
			res.Jobs[0].Ops[Read].IOs, res.Jobs[0].Ops[Write].IOs, res.Jobs[3].Ops[Read].IOs, res.Jobs[3].Ops[Write].IOs, res.Jobs[3].Duration)
	}
	var reads uint64
	for _, s := range res.Series {
		reads += s.IOs[Read]
	}
	if all := Group(res.Jobs[:3]); reads == 0 || reads > all.Ops[Read].IOs {
		t.Errorf("the samples hold %d reads of %d", reads, all.Ops[Read].IOs)
	}
	if len(res.Jobs[0].Points) < 1 {
		t.Errorf("%d points of a job", len(res.Jobs[0].Points))
	}
	for _, p := range res.Jobs[0].Points {
		if p.IOs[Read] == 0 || p.Bytes[Read] != 4096*p.IOs[Read] {
			t.Errorf("a point has %d bytes of %d reads", p.Bytes[Read], p.IOs[Read])
		}
	}
}

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

// The samples of a run cover what is measured: neither a ramp nor reading back. A remainder at the end that is less
// than half an interval is left out, since it says little about a rate.
func TestSeries(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Spec)
		samples int
	}{
		"whole intervals": {func(s *Spec) { s.Runtime = 3 * time.Second }, 3},
		"a bit more":      {func(s *Spec) { s.Runtime = 3400 * time.Millisecond }, 3},
		"much more":       {func(s *Spec) { s.Runtime = 3600 * time.Millisecond }, 4},
		"after a ramp":    {func(s *Spec) { s.Runtime, s.RampTime = 2600*time.Millisecond, 1600*time.Millisecond }, 2},
		"read back":       {func(s *Spec) { s.RW, s.Verify, s.Size, s.Loops = "write", true, fakeSize, 2 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testSeries(t, c.change, c.samples) })
		})
	}
}

func testSeries(t *testing.T, change func(*Spec), samples int) {
	s := spec("randread")
	s.IODepth = 4
	change(&s)
	reports := 0
	// No operation ends when an interval does.
	d := &fakeDevice{delay: 9_999_900, data: make([]byte, fakeSize)}
	res, err := Run(t.Context(), d, []Spec{s}, Options{Report: func(p *Progress) {
		if !p.Ramping && !p.Verifying {
			reports++
		}
	}})
	if s.RampTime > 0 {
		reports-- // of the short remainder of the interval in which the ramp ends
	}
	if err != nil || len(res.Series) != samples || reports != samples || len(res.Jobs[0].Points) != min(samples, 3) {
		t.Fatalf("%v; %d samples, %d reports, %d points of the job", err, len(res.Series), reports, len(res.Jobs[0].Points))
	}
	at := s.RampTime.Round(time.Second)
	for i, p := range res.Series {
		at += p.Length
		if got := p.IOPS(); p.At != at || got < 398 || got > 402 || p.Bandwidth() != 4096*got ||
			p.P50 < 9_900_000 || p.P50 > 10_100_000 || p.P99 != p.P50 {
			t.Errorf("sample %d: %v until %v, %v operations a second, %v bytes, p50 %d", i, p.Length, p.At, got, p.Bandwidth(), p.P50)
		}
	}
}

// The latencies of a sample are those of its interval.
func TestSeriesLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := spec("randread")
		s.Runtime, s.IODepth = 2*time.Second, 1
		d := &fakeDevice{}
		d.seen = func(*IO) {
			d.delay = 5 * time.Millisecond
			if time.Since(began) >= time.Second {
				d.delay = 20 * time.Millisecond
			}
		}
		res, err := Run(t.Context(), d, []Spec{s}, Options{})
		if err != nil || len(res.Series) != 2 {
			t.Fatal(err, res)
		}
		for i, want := range []float64{5e6, 20e6} {
			if p := res.Series[i]; float64(p.P50) < want*0.99 || float64(p.P50) > want*1.01 || float64(p.P99) > want*1.01 {
				t.Errorf("sample %d: p50 %d, p99 %d, want %v", i, p.P50, p.P99, want)
			}
		}
	})
}

func TestProgress(t *testing.T) { synctest.Test(t, testProgress) }

func testProgress(t *testing.T) {
	s := spec("randread")
	s.Runtime, s.RampTime = 200*time.Millisecond, 50*time.Millisecond
	var all []Progress
	o := Options{Interval: 10 * time.Millisecond, Report: func(p *Progress) { all = append(all, *p) }}
	if _, err := Run(context.Background(), &fakeDevice{delay: 50 * time.Microsecond}, []Spec{s}, o); err != nil {
		t.Fatal(err)
	}
	if !all[0].Ramping || all[0].Ops[Read].IOs != 0 {
		t.Errorf("the ramp is not told: %v", all[0].Elapsed)
	}
	i := slices.IndexFunc(all, func(p Progress) bool { return !p.Ramping })
	if i < 0 || i == len(all)-1 {
		t.Fatalf("%d reports, none of the measuring", len(all))
	}
	p := all[i+1] // the first of a whole interval
	if p.Elapsed <= 0 || p.Elapsed+p.Left != s.Runtime || p.Last.IOPS() <= 0 || p.Last.P99 <= 0 || p.Ops[Read].Latency.Count() == 0 {
		t.Errorf("after %v, %v left, %+v", p.Elapsed, p.Left, p.Last)
	}
}

// The time left of a job that is limited by operations is reported as for one limited by bytes.
func TestLeft(t *testing.T) { synctest.Test(t, testLeft) }

func testLeft(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"operations":         func(s *Spec) { s.NumberIOs = 100 },
		"bytes":              func(s *Spec) { s.IOSize = 100 << 12 },
		"operations or time": func(s *Spec) { s.NumberIOs, s.Runtime = 100, time.Hour },
		"time or operations": func(s *Spec) { s.NumberIOs, s.Runtime = 1000, 10*time.Second },
		"trims and writes":   func(s *Spec) { s.RW, s.NumberIOs = "trimwrite", 50 },
	} {
		s := spec("randread")
		s.IODepth, s.NumJobs = 1, 2
		change(&s)
		var all []Progress
		o := Options{Interval: 500 * time.Millisecond, Report: func(p *Progress) { all = append(all, *p) }}
		if _, err := Run(context.Background(), &fakeDevice{delay: 100 * time.Millisecond}, []Spec{s}, o); err != nil {
			t.Fatal(err)
		}
		if len(all) < 10 {
			t.Fatalf("%d reports in ten seconds", len(all))
		}
		if p := all[9]; p.Left < 4500*time.Millisecond || p.Left > 5500*time.Millisecond {
			t.Errorf("%s: %v left after %v of 10 s", name, p.Left, p.Elapsed)
		}
	}
}

// The time left of several jobs is that of the longest one, and isn't known while that of any isn't.
func TestLeftOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, long, ramped := spec("read"), spec("read"), spec("read")
		short.Runtime, long.Runtime, ramped.Runtime = 2*time.Second, 20*time.Second, time.Second
		ramped.RampTime = 4500 * time.Millisecond
		for _, specs := range [][]Spec{{short, ramped, long}, {long, ramped, short}} {
			var left []time.Duration
			o := Options{Report: func(p *Progress) { left = append(left, p.Left) }}
			if _, err := Run(t.Context(), &fakeDevice{delay: 20 * time.Millisecond}, specs, o); err != nil {
				t.Fatal(err)
			}
			for i, got := range left {
				want := long.Runtime - time.Duration(i+1)*time.Second
				if i+1 <= 4 {
					want = -1
				}
				if got != want {
					t.Errorf("%v are left after %d s, want %v", got, i+1, want)
				}
			}
		}
	})
}

// zones makes a spec use zones, the same in every direction.
func zones(z ...Zone) func(*Spec) {
	return func(s *Spec) { s.Distribution, s.Zones = Distribution{Kind: Zoned}, [ops][]Zone{z, z, z} }
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		change func(*Spec)
		says   string
	}{
		{func(s *Spec) { s.RW = "readrand" }, "rw="},
		{func(s *Spec) { s.BS[Read] = Fixed(1000) }, "bs="},
		{func(s *Spec) { s.BS[Read] = Fixed(0) }, "bs="},
		{func(s *Spec) { s.BS[Read] = Split{{Bytes: 4096, Percent: 60}, {Bytes: 8192, Percent: 50}} }, "110 percent"},
		{func(s *Spec) { s.BS[Read] = Split{{Bytes: 4096, Percent: -10}, {Bytes: 8192, Percent: 110}} }, "bssplit="},
		{func(s *Spec) { s.RWMixRead = 101 }, "rwmixread="},
		{func(s *Spec) { s.Align[Read] = 1000 }, "blockalign=1000: want a multiple"},
		{func(s *Spec) { s.Align[Read] = 2 * fakeSize }, "the range has"},
		{func(s *Spec) { s.Distribution = Distribution{Normal, 100} }, "less than 100, as normal:20"},
		{zones(Zone{Percent: 60, Share: 10}, Zone{Percent: 30, Share: 90}), "90 percent of the operations"},
		{zones(Zone{Percent: 60, Share: 20}, Zone{Percent: 40, Share: 90}), "110 percent of the range"},
		{zones(Zone{Percent: 100}), "not empty"},
		{zones(Zone{Percent: 100, Bytes: 4095}), "at least one operation"},
		{zones(Zone{Percent: 50, Bytes: 4096}, Zone{Percent: 50, Bytes: fakeSize}), "and the range"},
		{func(s *Spec) { s.IODepth = 0 }, "iodepth="},
		{func(s *Spec) { s.NumJobs = 1 << 30 }, "numjobs="},
		{func(s *Spec) { s.Offset = 100 }, "offset="},
		{func(s *Spec) { s.IOSize = -1 }, "io_size=-1: want bytes"},
		{func(s *Spec) { s.Loops = -1 }, "loops=-1: want"},
		{func(s *Spec) { s.NumberIOs = -1 }, "number_ios=-1: want"},
		{func(s *Spec) { s.Fsync = -1 }, "fsync=-1: want"},
		{func(s *Spec) { s.Offset = fakeSize }, "offset="},
		{func(s *Spec) { s.Size = fakeSize + 512 }, "size="},
		{func(s *Spec) { s.Size = 512 }, "size="},
		{func(s *Spec) { s.SizePercent = 101 }, "size="},
		{func(s *Spec) { s.OffsetPercent = 100 }, "offset=100%"},
		{func(s *Spec) { s.Runtime = -1 }, "runtime"},
		{func(s *Spec) { s.RampTime = -1 }, "ramp_time"},
		{func(s *Spec) { s.TimeBased = true }, "time_based needs a runtime"},
		{func(s *Spec) { s.Delay = -1 }, "startdelay=-1ns"},
		{func(s *Spec) { s.ThinkTime = -1 }, "thinktime=-1ns"},
		{func(s *Spec) { s.ThinkIOs = -1 }, "thinktime_blocks=-1"},
		{func(s *Spec) { s.ThinkIOs = 4 }, "needs a thinktime"},
		{func(s *Spec) { s.ThinkTime, s.RateIOPS[Read] = 1, 5 }, "want one of them"},
		{func(s *Spec) { s.Rate[Read] = -1 }, "rate="},
		{func(s *Spec) { s.RateIOPS[Read] = -1 }, "rate_iops="},
		{func(s *Spec) { s.RateIOPS[Read], s.Rate[Read] = 1, 1 }, "one of them"},
		{func(s *Spec) { s.RW, s.RateIOPS = "trimwrite", [ops]int{Write: 5, Trim: 6} }, "one rate"},
		{func(s *Spec) { s.RW, s.BS[Trim] = "trim", Fixed(1000) }, "bs=1000"},
		{func(s *Spec) { s.RW, s.BS[Trim] = "randtrimwrite", Fixed(2*fakeSize) }, "bs="},
		{func(s *Spec) { s.Poisson = true }, "rate_process=poisson"},
		{func(s *Spec) { s.Distribution = Distribution{Zipf, 0} }, "zipf:"},
		{func(s *Spec) { s.Distribution = Distribution{Zipf, 101} }, "up to 100"},
		{func(s *Spec) { s.Distribution = Distribution{Pareto, 1} }, "pareto:"},
		{func(s *Spec) { s.Distribution = Distribution{"gauss", 1} }, "random_distribution=gauss"},
		{func(s *Spec) { s.RW, s.Verify, s.IODepth, s.NumJobs = "write", true, 65, 2 }, "verify=crc32c: want a size of at least twice what is under way, iodepth × numjobs × bs = 532480 bytes"},
		{func(s *Spec) { s.RWMixRead = -1 }, "rwmixread=-1: want 0 to 100 percent"},
		{func(s *Spec) { s.NumJobs = 0 }, "numjobs=0: want at least 1 each"},
		{func(s *Spec) { s.IODepth, s.NumJobs = 32769, 2 }, "a product of at most 65536"},
		{func(s *Spec) { s.IOPercent = 101 }, "io_size=101%: want at most 100%"},
		{func(s *Spec) { s.IOPercent = -1 }, "io_size=-1%"},
		{func(s *Spec) { s.SizePercent = -1 }, "size=-1%"},
		{func(s *Spec) { s.OffsetPercent = -1 }, "offset=-1%"},
		{func(s *Spec) { s.Offset = -512 }, "offset=-512 bytes: want a multiple of 512 inside the namespace of 1.0 MiB"},
		{func(s *Spec) { s.Offset, s.Size = 512, fakeSize }, "size=1.0 MiB: the namespace has 1048064 bytes from offset 512 B on"},
		{func(s *Spec) { s.Offset = fakeSize - 2048 }, "bs=4.0 KiB: the namespace has 2.0 KiB from the offset on"},
		{func(s *Spec) { s.LatencyPercentile = -1 }, "latency_percentile=-1"},
		{func(s *Spec) { s.LatencyTarget, s.LatencyWindow, s.ThinkTime = 1, 1, 1 }, "want no rate, rate_iops or thinktime"},
		{func(s *Spec) { s.RW, s.Rate = "trimwrite", [ops]int64{Write: 5, Trim: 6} }, "one rate"},
		{func(s *Spec) { s.Sequential[Read] = 101 }, "percentage_random=-1: want 0 to 100 percent"},
		{func(s *Spec) { s.Sequential[Write] = -1 }, "percentage_random=101: want"},
		{func(s *Spec) { s.Distribution = Distribution{Pareto, 0} }, "pareto:0: want a share between 0 and 1"},
		{func(s *Spec) { s.Distribution = Distribution{Normal, -1} }, "normal:-1: want"},
		{zones(Zone{Percent: -10, Share: 50}, Zone{Percent: 110, Share: 50}), "not empty"},
		{zones(Zone{Percent: 50, Share: -50}, Zone{Percent: 50, Share: 50}), "not empty"},
		{zones(Zone{Percent: 50, Bytes: -4096}, Zone{Percent: 50, Share: 50}), "not empty"},
	} {
		s := spec("randread")
		tc.change(&s)
		if err := s.Validate(fakeSize, fakeBlock); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: error %v, want one that says %q", s, err, tc.says)
		}
	}
	for _, change := range []func(*Spec){
		func(s *Spec) { s.RWMixRead = 0 },
		func(s *Spec) { s.RWMixRead = 100 },
		func(s *Spec) { s.IODepth, s.NumJobs = 32768, 2 },
		func(s *Spec) { s.IOPercent, s.SizePercent, s.OffsetPercent = 100, 100, 99 },
		func(s *Spec) { s.Sequential = [ops]int{0, 100, 0} },
		func(s *Spec) { s.Offset = fakeSize - 4096 },
		func(s *Spec) { s.Size = 4096 },
		func(s *Spec) { s.Size, s.Align[Read] = 8192, 8192 },
		func(s *Spec) { s.BS[Read] = Fixed(fakeSize) },
		func(s *Spec) { s.BS[Read] = Split{{Bytes: 4096, Percent: 0}, {Bytes: 8192, Percent: 100}} },
		func(s *Spec) { s.BS[Trim] = Fixed(1000) }, // it trims nothing
		func(s *Spec) { s.RW, s.Verify, s.IODepth, s.NumJobs = "write", true, 64, 2 },
		func(s *Spec) { s.RW, s.Verify, s.IODepth = "read", true, 200 }, // reads may overlap
		func(s *Spec) { s.Poisson, s.RateIOPS[Read] = true, 1 },
		func(s *Spec) { s.LatencyPercentile = 100 },
		func(s *Spec) { s.Distribution = Distribution{Zipf, 100} },
		func(s *Spec) { s.Distribution = Distribution{Normal, 0} },
		zones(Zone{Percent: 0, Share: 50}, Zone{Percent: 100, Share: 50}),
		zones(Zone{Percent: 50, Bytes: 4096}, Zone{Percent: 50, Bytes: fakeSize - 4096}),
	} {
		s := spec("randread")
		change(&s)
		if err := s.Validate(fakeSize, fakeBlock); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	s := spec("readrand")
	if _, err := Run(t.Context(), &fakeDevice{}, []Spec{spec("read"), s}, Options{}); err == nil || !strings.HasPrefix(err.Error(), "test: rw=readrand: ") {
		t.Errorf("a run with it: %v", err)
	}
}

// If buffers are refilled, no two writes have the same data, nor do two blocks of one; otherwise there are as many
// different ones as the job is deep.
func TestRefill(t *testing.T) {
	for _, rw := range []string{"randwrite", "randrw", "trimwrite"} {
		for _, refill := range []bool{true, false} {
			t.Run(fmt.Sprint(rw, refill), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testRefill(t, rw, refill) }) })
		}
	}
}

func testRefill(t *testing.T, rw string, refill bool) {
	s := spec(rw)
	s.Refill, s.IODepth = refill, 3
	var mu sync.Mutex
	writes, blocks := 0, map[[fakeBlock]byte]bool{}
	d := &fakeDevice{delay: time.Millisecond, seen: func(io *IO) {
		mu.Lock()
		defer mu.Unlock()
		if io.Op != Write {
			return
		}
		writes++
		for b := range slices.Chunk(io.Buf, fakeBlock) {
			blocks[[fakeBlock]byte(b)] = true
		}
	}}
	if _, err := runOne(d, s); err != nil {
		t.Fatal(err)
	}
	per := 4096 / fakeBlock
	if want := writes * per; writes < 20 || refill && len(blocks) != want || !refill && len(blocks) != s.IODepth*per {
		t.Errorf("%d writes have %d different blocks", writes, len(blocks))
	}
}

// The generator allocates nothing per operation, with a depth and with a rate.
func TestNoAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const (
		most = 0.01 // per operation
		once = 200  // per run: 70 to 110, for jobs, goroutines and timers
	)
	for _, rate := range []int{0, 200_000} {
		d := &syncDevice{}
		s := spec("randrw")
		s.RateIOPS = [ops]int{rate, rate}
		s.Size, s.Refill = fakeSize, true
		var n float64
		// A busy machine does less in the same time.
		for s.Runtime, s.TimeBased = 100*time.Millisecond, true; d.ios < 10_000 && s.Runtime < 10*time.Second; s.Runtime *= 4 {
			n = testing.AllocsPerRun(1, func() {
				res, err := Run(context.Background(), d, []Spec{s}, Options{})
				if err != nil {
					t.Fatal(err)
				}
				d.ios = res.Jobs[0].Total().IOs
			})
		}
		if d.ios < 10_000 || n > once+most*float64(d.ios) {
			t.Errorf("rate %d: %v allocations in %d operations", rate, n, d.ios)
		}
	}
}

// Operations outstanding when the time is over count, however late they end: a device that stalls then is noticed.
func TestStallAtTheEnd(t *testing.T) { synctest.Test(t, testStallAtTheEnd) }

func testStallAtTheEnd(t *testing.T) {
	const runtime, stall = 50 * time.Millisecond, 300 * time.Millisecond
	d := &fakeDevice{delay: time.Millisecond, gate: make(chan struct{}, 100)}
	for range 10 * 8 {
		d.gate <- struct{}{} // ten rounds of the depth, and no more until it opens
	}
	time.AfterFunc(stall, func() { close(d.gate) })
	s := spec("randread")
	s.Runtime = runtime
	res, err := runOne(d, s)
	if err != nil {
		t.Fatal(err)
	}
	m := &res.Ops[Read]
	if worst := time.Duration(m.Latency.Max()); m.IOs != 88 || worst != stall-10*time.Millisecond {
		t.Errorf("%d operations, the longest took %v; want 88, and %v of the last 8", m.IOs, worst, stall-10*time.Millisecond)
	}
	if res.Duration != stall {
		t.Errorf("measured for %v, want %v", res.Duration, stall)
	}
}
