package loadgen

import (
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// opLog records what a device was asked for, in order.
type opLog struct {
	mu  sync.Mutex
	ops []Op
	fua int
}

func (l *opLog) note(io *IO) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, io.Op)
	if io.FUA {
		l.fua++
	}
}

// TestFsync: a job flushes after the given number of writes, and after the last ones, whatever its depth, with a
// rate and with its data checked. Flushes are counted separately, with the time that they take.
func TestFsync(t *testing.T) {
	for _, c := range []struct {
		name          string
		change        func(*Spec)
		writes, syncs int
	}{
		{"each", func(s *Spec) { s.Fsync, s.IODepth = 1, 1 }, 256, 256},
		{"every eighth", func(s *Spec) { s.Fsync = 8 }, 256, 32},
		{"with a rate", func(s *Spec) { s.Fsync, s.RateIOPS = 8, [ops]int{0, 1000} }, 256, 32},
		{"checked", func(s *Spec) { s.Fsync, s.Verify = 8, true }, 256, 32},
		{"fewer writes", func(s *Spec) { s.Fsync, s.NumberIOs = 8, 7 }, 7, 0},
		{"never", func(*Spec) {}, 256, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &opLog{}
				d := &fakeDevice{seen: l.note, delay: time.Millisecond, data: make([]byte, fakeSize)}
				s := spec("write")
				c.change(&s)
				res := mustRun(t, d, s)
				writes, syncs := 0, 0
				for _, op := range l.ops {
					switch op {
					case Write:
						writes++
					case Flush:
						// What is submitted together comes to the device in any order.
						if syncs++; max(writes-syncs*s.Fsync, syncs*s.Fsync-writes) >= s.IODepth {
							t.Fatalf("flush %d after %d writes", syncs, writes)
						}
					}
				}
				if writes != c.writes || syncs != c.syncs || res.Syncs.IOs != uint64(c.syncs) || res.Ops[Write].IOs != uint64(c.writes) {
					t.Errorf("%d writes and %d flushes, measured %d and %d; want %d and %d",
						writes, syncs, res.Ops[Write].IOs, res.Syncs.IOs, c.writes, c.syncs)
				}
				if n := res.Syncs.Latency.Percentile(50); c.syncs > 0 && (n < 900_000 || n > 1_100_000) {
					t.Errorf("a flush took %d ns, want 1 ms", n)
				}
				if l.fua != 0 {
					t.Errorf("%d writes are durable by themselves", l.fua)
				}
			})
		})
	}
}

// TestFsyncBesideFdatasync: each of the two comes after its number of writes, and where both are due one flush is sent.
// The orders are those of fio 3.33, but for the flush behind the last write, which fio leaves out.
func TestFsyncBesideFdatasync(t *testing.T) {
	for _, c := range []struct {
		fsync, fdatasync int
		want             string
	}{
		{4, 6, "wwwwfwwfwwfwwwwf"},
		{4, 4, "wwwwfwwwwfwwwwf"},
		{3, 1, "wfwfwfwfwfwfwfwfwfwfwfwf"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got strings.Builder
			d := &fakeDevice{seen: func(io *IO) { got.WriteByte("rwtf"[io.Op]) }, delay: time.Millisecond}
			s := spec("write")
			s.IODepth, s.NumberIOs, s.Fsync, s.Fdatasync = 1, 12, c.fsync, c.fdatasync
			mustRun(t, d, s)
			if got.String() != c.want {
				t.Errorf("fsync=%d, fdatasync=%d: %s, want %s", c.fsync, c.fdatasync, got.String(), c.want)
			}
		})
	}
}

// TestEndFsync: a job that writes flushes once, behind everything else, and takes until then, whatever ended it.
func TestEndFsync(t *testing.T) {
	const delay = time.Millisecond
	for _, c := range []struct {
		name   string
		change func(*Spec)
		syncs  int
		takes  time.Duration // 0 if it doesn't matter
	}{
		{"by its size", func(s *Spec) { s.IODepth = 1 }, 1, 257 * delay},
		{"at a depth", func(s *Spec) { s.IODepth = 16 }, 1, 17 * delay},
		{"by its time", func(s *Spec) { s.IODepth, s.Runtime, s.TimeBased = 1, 10500*time.Microsecond, true }, 1, 12 * delay},
		{"by operations", func(s *Spec) { s.IODepth, s.NumberIOs = 16, 16 }, 1, 2 * delay},
		{"each of two", func(s *Spec) { s.NumJobs = 2 }, 2, 0},
		{"with a rate", func(s *Spec) { s.RateIOPS = [ops]int{Write: 1000} }, 1, 0},
		{"at rest", func(s *Spec) { s.ThinkTime, s.ThinkIOs, s.Runtime, s.IODepth = time.Hour, 8, 20*time.Millisecond, 1 }, 1, 21 * delay},
		{"checked", func(s *Spec) { s.Verify = true }, 1, 0},
		{"trimmed", func(s *Spec) { s.RW, s.NumberIOs = "trimwrite", 8 }, 1, 0},
		{"beside flushes", func(s *Spec) { s.Fsync = 100 }, 3, 0},
		{"only reads", func(s *Spec) { s.RW = "read" }, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &opLog{}
				d := &fakeDevice{seen: l.note, delay: delay, data: make([]byte, fakeSize)}
				s := spec("write")
				s.EndFsync = true
				c.change(&s)
				res := mustRun(t, d, s)
				var syncs, changes int
				for _, op := range l.ops {
					switch op {
					case Flush:
						syncs++
					case Write, Trim:
						changes++
						if syncs == c.syncs && s.NumJobs == 1 {
							t.Fatalf("operation %d comes after the last flush", changes)
						}
					}
				}
				if syncs != c.syncs || res.Syncs.IOs != uint64(c.syncs) {
					t.Errorf("%d flushes, measured %d, want %d", syncs, res.Syncs.IOs, c.syncs)
				}
				if c.takes > 0 && res.Duration != c.takes {
					t.Errorf("took %v, want %v", res.Duration, c.takes)
				}
			})
		})
	}
}

// TestEndFsyncOfFailed: a job that failed doesn't flush, as in fio.
func TestEndFsyncOfFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &opLog{}
		s := spec("write")
		s.EndFsync, s.IODepth = true, 1
		if _, err := runOne(&fakeDevice{seen: l.note, failAt: 3}, s); err == nil || len(l.ops) != 3 {
			t.Errorf("%v; operations %v", err, l.ops)
		}
	})
}

// TestSync: every write is durable when it ends, also one that follows a trim; no read or trim is.
func TestSync(t *testing.T) {
	for _, rw := range []string{"randrw", "trimwrite"} {
		synctest.Test(t, func(t *testing.T) {
			l := &opLog{}
			s := spec(rw)
			s.Sync = true
			res := mustRun(t, &fakeDevice{seen: l.note}, s)
			if n := int(res.Ops[Write].IOs); l.fua != n || n == 0 || n == len(l.ops) {
				t.Errorf("%s: %d of %d writes are durable, of %d operations", rw, l.fua, n, len(l.ops))
			}
		})
	}
}

// TestHowMuch: what ends a job without a runtime.
func TestHowMuch(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Spec)
		want   uint64
	}{
		{"once", func(*Spec) {}, 256},
		{"loops", func(s *Spec) { s.Loops = 3 }, 768},
		{"fewer bytes", func(s *Spec) { s.IOSize = 40 << 10 }, 10},
		{"more bytes than the size", func(s *Spec) { s.Size, s.IOSize = 64<<10, 1<<20 }, 256},
		{"a share of the size", func(s *Spec) { s.Size, s.IOPercent = 64<<10, 30 }, 5},
		{"loops of bytes", func(s *Spec) { s.IOSize, s.Loops = 40<<10, 3 }, 30},
		{"loops of a share", func(s *Spec) { s.Size, s.IOPercent, s.Loops = 64<<10, 50, 3 }, 24},
		{"so many operations", func(s *Spec) { s.NumberIOs = 5 }, 5},
		{"more operations than there are", func(s *Spec) { s.NumberIOs = 1000 }, 256},
		{"loops of operations", func(s *Spec) { s.NumberIOs, s.Loops = 5, 3 }, 15},
		{"more loops than can be counted", func(s *Spec) { s.Loops, s.Runtime, s.IODepth = math.MaxInt, 100500*time.Microsecond, 1 }, 101},
		{"more operations than there are in a loop", func(s *Spec) { s.Size, s.NumberIOs, s.Loops = 64<<10, 20, 3 }, 48},
		{"operations over and over", func(s *Spec) { s.NumberIOs, s.TimeBased, s.Runtime, s.IODepth = 5, true, 100500*time.Microsecond, 1 }, 101},
		{"each of two", func(s *Spec) { s.NumberIOs, s.NumJobs = 5, 2 }, 10},
		{"before the time is over", func(s *Spec) { s.NumberIOs, s.Runtime = 5, time.Hour }, 5},
		{"with a rate", func(s *Spec) { s.NumberIOs, s.RateIOPS = 5, [ops]int{100, 0} }, 5},
		{"behind a rate", func(s *Spec) { s.NumberIOs, s.RateIOPS, s.IODepth = 5, [ops]int{Read: 10_000}, 1 }, 5},
		{"bytes behind a rate", func(s *Spec) { s.IOSize, s.RateIOPS, s.IODepth = 40<<10, [ops]int{Read: 10_000}, 1 }, 10},
		{"bytes before the time is over", func(s *Spec) { s.IOSize, s.Runtime = 40<<10, time.Hour }, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := spec("read")
				c.change(&s)
				res, err := runOne(&fakeDevice{delay: time.Millisecond}, s)
				if err != nil || res.Ops[Read].IOs != c.want || res.Unstarted != 0 {
					t.Errorf("%d operations, %d not begun, %v; want %d", res.Ops[Read].IOs, res.Unstarted, err, c.want)
				}
			})
		})
	}
}
