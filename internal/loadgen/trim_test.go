package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Trims go through the size once, as reads and writes do, and take no buffers.
func TestTrim(t *testing.T) { synctest.Test(t, testTrim) }

func testTrim(t *testing.T) {
	for _, rw := range []string{"trim", "randtrim"} {
		var trims [fakeSize / 65536]int
		d := &fakeDevice{delay: time.Millisecond}
		d.seen = func(io *IO) {
			d.mu.Lock()
			defer d.mu.Unlock()
			if io.Op != Trim || io.Length != 65536 || io.Buf != nil || io.Offset%65536 != 0 {
				t.Errorf("%s: %v of %d bytes at %d with a buffer of %d", rw, io.Op, io.Length, io.Offset, len(io.Buf))
			}
			trims[io.Offset/65536]++
			if d.lent.Load() != 0 {
				t.Errorf("%s: %d buffers", rw, d.lent.Load())
			}
		}
		s := spec(rw)
		s.BS[Trim] = Fixed(65536)
		res := mustRun(t, d, s)
		if n := d.lent.Load(); n != 0 {
			t.Errorf("%s: %d buffers are left after the job", rw, n)
		}
		for i, n := range trims {
			if n != 1 {
				t.Errorf("%s: block %d was trimmed %d times", rw, i, n)
			}
		}
		m := &res.Ops[Trim]
		if m.IOs != 16 || m.Bytes != fakeSize || m.Latency.Min() != int64(time.Millisecond) || res.Total().IOs != 16 {
			t.Errorf("%s: %d of %d bytes, %v", rw, m.IOs, m.Bytes, m.Latency.Min())
		}
	}
}

// Each trim is followed by a write of the same blocks, which begins when the trim has ended; the limits of a job
// count only the trims.
func TestTrimWrite(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Spec)
		want   uint64 // trims, and writes
	}{
		{"once", func(*Spec) {}, 256},
		{"operations", func(s *Spec) { s.NumberIOs = 5 }, 5},
		{"bytes", func(s *Spec) { s.IOSize = 64 << 10 }, 16},
		{"the size of trims", func(s *Spec) { s.BS[Write], s.BS[Trim] = Fixed(4096), Fixed(65536) }, 16},
		{"a rate", func(s *Spec) { s.RateIOPS, s.Runtime = [ops]int{0, 100, 100}, time.Second }, 100},
		{"rests", func(s *Spec) { s.ThinkTime, s.ThinkIOs, s.NumberIOs = time.Millisecond, 3, 20 }, 20},
		{"a rest after each", func(s *Spec) { s.ThinkTime, s.NumberIOs = time.Millisecond, 20 }, 20},
		{"rests and flushes", func(s *Spec) { s.ThinkTime, s.ThinkIOs, s.Fsync, s.NumberIOs = time.Millisecond, 2, 3, 20 }, 20},
		{"flushes", func(s *Spec) { s.Fsync, s.NumberIOs = 3, 20 }, 20},
	} {
		for _, rw := range []string{"trimwrite", "randtrimwrite"} {
			t.Run(c.name+", "+rw, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testTrimWrite(t, rw, c.change, c.want) })
			})
		}
	}
}

func testTrimWrite(t *testing.T, rw string, change func(*Spec), want uint64) {
	s := spec(rw)
	change(&s)
	d := &orderDevice{t: t, trimmed: map[int64]int{}}
	res, err := Run(context.Background(), d, []Spec{s}, Options{pace: paceByTimer})
	if err != nil {
		t.Fatal(err)
	}
	g := Group(res.Jobs)
	for op, m := range map[Op]*Measured{Trim: &g.Ops[Trim], Write: &g.Ops[Write]} {
		// An operation that is due exactly at the end may be there or not.
		if m.IOs < want || m.IOs > want+1 || m.IOs > want && s.Runtime == 0 || m.Bytes != m.IOs*uint64(s.BS[Trim][0].Bytes) {
			t.Errorf("%d times %v of %d bytes together, want %d", m.IOs, op, m.Bytes, want)
		}
	}
	if len(d.trimmed) != 0 && s.Runtime == 0 {
		t.Errorf("%d blocks were trimmed and not written", len(d.trimmed))
	}
}

// TestTrimWriteInOrder: in which order, and when, a job trims, writes, flushes and rests. Rests come as with fio 3.33,
// which counts a trim and its write as two operations, and may rest between them. fio doesn't flush in these patterns.
func TestTrimWriteInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		depth, thinkIOs, fsync, pairs int
		want                          string
	}{
		"as fast as it goes":      {1, 0, 0, 2, "0 trim, 1 write, 2 trim, 3 write"},
		"a rest after each":       {1, 1, 0, 2, "0 trim, 11 write, 22 trim, 33 write"},
		"a rest after two":        {1, 2, 0, 3, "0 trim, 1 write, 12 trim, 13 write, 24 trim, 25 write"},
		"a rest after three":      {1, 3, 0, 4, "0 trim, 1 write, 2 trim, 13 write, 14 trim, 15 write, 26 trim, 27 write"},
		"at once":                 {2, 2, 0, 4, "0 trim, 0 trim, 11 write, 11 write, 22 trim, 22 trim, 33 write, 33 write"},
		"deeper":                  {8, 2, 0, 4, "0 trim, 0 trim, 11 write, 11 write, 22 trim, 22 trim, 33 write, 33 write"},
		"a flush":                 {1, 0, 2, 3, "0 trim, 1 write, 2 trim, 3 write, 4 sync, 5 trim, 6 write"},
		"a flush, and rests":      {1, 2, 2, 3, "0 trim, 1 write, 12 trim, 13 write, 24 sync, 25 trim, 26 write"},
		"a flush amid operations": {1, 3, 2, 3, "0 trim, 1 write, 2 trim, 13 write, 14 sync, 15 trim, 16 write"},
	} {
		for _, issued := range slices.Compact([]bool{true, c.depth > 1}) { // one by one they begin as they end
			t.Run(fmt.Sprint(name, issued), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					var got []string
					began := time.Now()
					s := spec("trimwrite")
					s.IODepth, s.ThinkIOs, s.ThinkIssued, s.Fsync, s.NumberIOs = c.depth, c.thinkIOs, issued, c.fsync, int64(c.pairs)
					if c.thinkIOs > 0 {
						s.ThinkTime = 10 * time.Millisecond
					}
					_, err := runOne(&fakeDevice{delay: time.Millisecond, seen: func(io *IO) {
						mu.Lock()
						defer mu.Unlock()
						got = append(got, fmt.Sprint(time.Since(began).Milliseconds(), " ", io.Op))
					}}, s)
					if text := strings.Join(got, ", "); err != nil || text != c.want {
						t.Errorf("%v: %s, want %s", err, text, c.want)
					}
				})
			})
		}
	}
}

// orderDevice takes random times, and accepts only writes of what has just been trimmed.
type orderDevice struct {
	fakeDevice

	t       *testing.T
	trimmed map[int64]int // bytes, by offset
}

func (d *orderDevice) OpenQueue(int) (Queue, error) { return (*orderQueue)(d), nil }

type orderQueue orderDevice

func (q *orderQueue) Alloc(n int) ([]byte, error) { return make([]byte, n), nil }
func (q *orderQueue) Free([]byte)                 {}

func (q *orderQueue) Submit(io *IO) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if io.Op == Write {
		if q.trimmed[io.Offset] != len(io.Buf) || io.Length != len(io.Buf) {
			q.t.Errorf("%d bytes are written at %d, where %d were trimmed", len(io.Buf), io.Offset, q.trimmed[io.Offset])
		}
		delete(q.trimmed, io.Offset)
	}
	time.AfterFunc(time.Duration(1+rand.IntN(1000))*time.Microsecond, func() {
		if io.Op == Trim {
			q.mu.Lock()
			q.trimmed[io.Offset] = io.Length
			q.mu.Unlock()
		}
		io.Done(io)
	})
}

// What trims leave is up to the device, whatever was written there before; what is written afterwards is checked.
func TestVerifyTrims(t *testing.T) { synctest.Test(t, testVerifyTrims) }

func testVerifyTrims(t *testing.T) {
	d := &fakeDevice{delay: 100 * time.Microsecond, data: make([]byte, fakeSize)}
	specs := []Spec{verifySpec("randwrite"), verifySpec("randtrim"), verifySpec("randread")}
	for i := range specs {
		s := &specs[i]
		s.IODepth, s.Runtime = 4, 50*time.Millisecond
	}
	specs[2].Verify = false // it would expect stamps everywhere
	res, err := Run(context.Background(), d, specs, Options{pace: paceByTimer})
	if err != nil {
		t.Fatal(err)
	}
	if g := Group(res.Jobs); g.Verified == 0 || g.Verified >= fakeSize || g.Ops[Trim].IOs < 1000 {
		t.Errorf("%d bytes verified of those that %d trims left", g.Verified, g.Ops[Trim].IOs)
	}
	// One that begins when all is written trims a part of it.
	specs = []Spec{verifySpec("write"), verifySpec("trim")}
	specs[1].Delay, specs[1].Offset, specs[1].Size = time.Second, fakeSize/2, fakeSize/4
	if res, err = Run(t.Context(), d, specs, Options{}); err != nil {
		t.Fatal(err)
	}
	if g := Group(res.Jobs); g.Verified != fakeSize*3/4 {
		t.Errorf("%d bytes verified, want all but the quarter that was trimmed", g.Verified)
	}
	for _, rw := range []string{"trimwrite", "randtrimwrite"} {
		if g, err := runOne(d, verifySpec(rw)); err != nil || g.Verified != fakeSize {
			t.Errorf("%s: %d bytes verified, %v", rw, g.Verified, err)
		}
	}
}

// A device that executes a trim after the write that follows it, although it answered earlier, loses data, which is
// detected.
func TestVerifyFindsLateTrim(t *testing.T) { synctest.Test(t, testVerifyFindsLateTrim) }

func testVerifyFindsLateTrim(t *testing.T) {
	const at = 40960
	d := &fakeDevice{data: make([]byte, fakeSize)}
	d.seen = func(io *IO) {
		if io.Op == Write && io.Offset == at {
			io.Buf = make([]byte, len(io.Buf)) // what the trim leaves
		}
	}
	_, err := runOne(d, verifySpec("trimwrite"))
	var ve *VerifyError
	if !errors.As(err, &ve) || ve.Offset != at || !strings.Contains(err.Error(), "no stamp") {
		t.Errorf("%v, want that offset %d has no stamp", err, at)
	}
}
