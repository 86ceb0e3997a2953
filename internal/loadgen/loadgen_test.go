package loadgen

import (
	"bytes"
	"context"
	"fmt"
	"slices"
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
func paceByTimer(p *pacer) (stop func(), err error) { return pacing(p.step) }

// pacing calls step until stop is called.
func pacing(step func() int64) (stop func(), err error) {
	end, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for left := step(); left >= 0; left = step() {
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

// mustRun is runOne for what must not fail.
func mustRun(t *testing.T, d *fakeDevice, s Spec) *JobResult {
	t.Helper()
	res, err := runOne(d, s)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Without a runtime a job moves its size: sequential or random, every block once.
func TestOnceThrough(t *testing.T) { synctest.Test(t, testOnceThrough) }

func testOnceThrough(t *testing.T) {
	for _, rw := range []string{"read", "randread"} {
		var offsets [fakeSize / 4096]atomic.Int32
		d := &fakeDevice{seen: func(io *IO) { offsets[io.Offset/4096].Add(1) }}
		res := mustRun(t, d, spec(rw))
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
		res := mustRun(t, &fakeDevice{delay: delay}, s)
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
			s.OffsetPercent, s.BS[Read] = 31, Split{{Bytes: 8 << 10, Percent: 50}, {Bytes: 16 << 10, Percent: 50}}
		}, 312 << 10, 688 << 10},
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
		mustRun(t, d, s)
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
	res := mustRun(t, d, s)
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
	res := mustRun(t, d, s)
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
		mustRun(t, d, s)
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
	mustRun(t, d, s)
	per := 4096 / fakeBlock
	if want := writes * per; writes < 20 || refill && len(blocks) != want || !refill && len(blocks) != s.IODepth*per {
		t.Errorf("%d writes have %d different blocks", writes, len(blocks))
	}
}

// TestZeroes: a job that writes zeroes writes nothing else, not even where it has read before, or refills its buffers.
func TestZeroes(t *testing.T) {
	for _, rw := range []string{"write", "randrw", "trimwrite"} {
		for _, refill := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := spec(rw)
				s.Zeroes, s.Refill, s.IODepth = true, refill, 3
				var writes, others atomic.Int32
				d := &fakeDevice{delay: time.Millisecond, seen: func(io *IO) {
					switch io.Op {
					case Read:
						io.Buf[0] = 1
					case Write:
						writes.Add(1)
						if slices.Max(io.Buf) > 0 {
							others.Add(1)
						}
					}
				}}
				mustRun(t, d, s)
				if writes.Load() < 20 || others.Load() > 0 {
					t.Errorf("%s, refill %v: %d of %d writes have other data", rw, refill, others.Load(), writes.Load())
				}
			})
		}
	}
}

// TestCompress: of each chunk that is written, the share that the spec says is zeroes, at its end, and the rest differs
// from any other.
func TestCompress(t *testing.T) {
	for chunk, want := range map[int]int{0: 4096, 512: 512, 1024: 1024, 1 << 20: 4096} {
		for percent, data := range map[int]int{25: 75, 50: 50, 100: 0} {
			synctest.Test(t, func(t *testing.T) {
				s := spec("randrw")
				s.Compress, s.CompressChunk = percent, chunk
				var mu sync.Mutex
				seen := map[string]bool{}
				chunks := 0
				d := &fakeDevice{delay: time.Millisecond, seen: func(io *IO) {
					mu.Lock()
					defer mu.Unlock()
					if io.Op == Read {
						copy(io.Buf, bytes.Repeat([]byte{1}, len(io.Buf)))
						return
					}
					for b := range slices.Chunk(io.Buf, want) {
						random, zeroes := b[:len(b)*data/100], b[len(b)*data/100:]
						if len(bytes.Trim(zeroes, "\x00")) > 0 || bytes.Contains(random, make([]byte, 16)) {
							t.Errorf("%d%% of %d: % x", percent, chunk, b)
						}
						chunks++
						seen[string(random)] = true
					}
				}}
				mustRun(t, d, s)
				if chunks < 20 || data > 0 && len(seen) != chunks {
					t.Errorf("%d%% of %d: %d chunks, of which %d differ", percent, chunk, chunks, len(seen))
				}
			})
		}
	}
}

// TestDedupe: of the writes the share that the spec says repeats an earlier one, also where chunks of them are zeroes.
func TestDedupe(t *testing.T) {
	for percent, want := range map[int][2]int{1: {500, 600}, 30: {360, 480}, 100: {1, 1}} {
		synctest.Test(t, func(t *testing.T) {
			s := spec("randwrite")
			s.Dedupe, s.Compress, s.CompressChunk, s.IOSize = percent, 50, 512, 600*4096
			var mu sync.Mutex
			unique, writes := map[string]bool{}, 0
			mustRun(t, &fakeDevice{delay: time.Millisecond, seen: func(io *IO) {
				mu.Lock()
				defer mu.Unlock()
				writes++
				unique[string(io.Buf)] = true
			}}, s)
			if n := len(unique); writes != 600 || n < want[0] || n > want[1] {
				t.Errorf("%d%%: %d of %d writes differ, want %d to %d", percent, n, writes, want[0], want[1])
			}
		})
	}
}

// TestSeedOfData: jobs with different seeds, and the clones of one, write different data, so that a target that
// deduplicates stores all.
func TestSeedOfData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := map[[4096]byte]uint64{}
		for _, seed := range []uint64{1, 1 + 1<<8, 1 + 1<<63} {
			s := spec("write")
			s.Size, s.IODepth, s.NumJobs, s.Seed = 4096, 1, 2, seed
			d := &fakeDevice{seen: func(io *IO) {
				if other, twice := written[[4096]byte(io.Buf)]; twice {
					t.Errorf("seeds %#x and %#x write the same", other, seed)
				}
				written[[4096]byte(io.Buf)] = seed
			}}
			if _, err := Run(t.Context(), d, []Spec{s}, Options{}); err != nil {
				t.Fatal(err)
			}
		}
		if len(written) != 6 {
			t.Errorf("%d blocks were written, want one by each clone", len(written))
		}
	})
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
	res := mustRun(t, d, s)
	m := &res.Ops[Read]
	if worst := time.Duration(m.Latency.Max()); m.IOs != 88 || worst != stall-10*time.Millisecond {
		t.Errorf("%d operations, the longest took %v; want 88, and %v of the last 8", m.IOs, worst, stall-10*time.Millisecond)
	}
	if res.Duration != stall {
		t.Errorf("measured for %v, want %v", res.Duration, stall)
	}
}
