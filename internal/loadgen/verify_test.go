package loadgen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

func verifySpec(rw string) Spec {
	s := spec(rw)
	s.Verify = true
	return s
}

// Written data is read back, whatever the pattern, and all of it is right.
func TestVerify(t *testing.T) { synctest.Test(t, testVerify) }

func testVerify(t *testing.T) {
	for _, rw := range []string{"write", "randwrite", "rw", "randrw"} {
		for name, change := range map[string]func(*Spec){
			"once":    func(*Spec) {},
			"looping": func(s *Spec) { s.Runtime = 50 * time.Millisecond },
			"split":   func(s *Spec) { s.BS[Write] = Split{{Bytes: 4096, Percent: 50}, {Bytes: 16384, Percent: 50}} },
			"range":   func(s *Spec) { s.BS[Read], s.BS[Write] = Range(4096, 16384), Range(4096, 16384) },
			"align": func(s *Spec) {
				s.BS, s.Align = [ops]Split{Fixed(8192), Fixed(8192), Fixed(8192)}, [ops]int{Read: 4096, Write: 4096}
			},
			"delay":   func(s *Spec) { s.Delay = time.Second },
			"fsync":   func(s *Spec) { s.Fsync, s.Runtime = 3, 50*time.Millisecond },
			"backlog": func(s *Spec) { s.Backlog, s.Runtime = 5, 50*time.Millisecond },
			"jobs":    func(s *Spec) { s.NumJobs = 3 },
			"zipf":    func(s *Spec) { s.Distribution = Distribution{Zipf, 3}; s.Runtime = 50 * time.Millisecond },
			"rate":    func(s *Spec) { s.RateIOPS = [ops]int{2000, 2000}; s.Runtime = 50 * time.Millisecond },
		} {
			d := &fakeDevice{delay: 100 * time.Microsecond, data: make([]byte, fakeSize)}
			s := verifySpec(rw)
			change(&s)
			res, err := runOne(d, s)
			if err != nil {
				t.Errorf("%s, %s: %v", rw, name, err)
				continue
			}
			if res.Verified < 4096 {
				t.Errorf("%s, %s: nothing was verified", rw, name)
			}
			if rw == "randwrite" && name == "once" && res.Verified != fakeSize {
				t.Errorf("%s, %s: %d bytes verified, want all %d", rw, name, res.Verified, fakeSize)
			}
			if rw == "randwrite" && res.Ops[Read].IOs != 0 {
				t.Errorf("%s, %s: %d reads are measured", rw, name, res.Ops[Read].IOs)
			}
		}
	}
}

// TestVerifyUnread: what is written isn't read back if the spec says so, but reads among the writes are checked, and a
// later run can check the rest.
func TestVerifyUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDevice{delay: time.Millisecond, data: make([]byte, fakeSize)}
		var reads atomic.Int32
		d.seen = func(io *IO) {
			if io.Op == Read {
				reads.Add(1)
			}
		}
		s := verifySpec("randwrite")
		s.Unread = true
		if res := mustRun(t, d, s); res.Verified != 0 || reads.Load() != 0 || res.Ops[Write].Bytes != fakeSize {
			t.Errorf("%d bytes were verified by %d reads, of %d", res.Verified, reads.Load(), res.Ops[Write].Bytes)
		}
		if res := mustRun(t, d, verifySpec("read")); res.Verified != fakeSize {
			t.Errorf("%d bytes were verified later", res.Verified)
		}
		s.RW, s.Loops = "randrw", 2
		if res := mustRun(t, d, s); res.Verified == 0 {
			t.Errorf("nothing was verified of %d bytes that were read among writes", res.Ops[Read].Bytes)
		}
	})
}

// The sizes of directions that a pattern doesn't have make no difference, even those of no whole blocks.
func TestVerifyOtherSizes(t *testing.T) { synctest.Test(t, testVerifyOtherSizes) }

func testVerifyOtherSizes(t *testing.T) {
	for _, c := range []struct {
		rw    string
		reads int // percent
		draws Op
	}{
		{"write", 50, Write}, {"randwrite", 50, Write}, {"trimwrite", 50, Trim}, {"randrw", 0, Write},
	} {
		d := &fakeDevice{data: make([]byte, fakeSize)}
		s := verifySpec(c.rw)
		s.RWMixRead, s.BS = c.reads, [ops]Split{Fixed(100), Fixed(100), Fixed(100)}
		s.BS[c.draws] = Fixed(8192)
		if res, err := runOne(d, s); err != nil || res.Verified != fakeSize {
			t.Errorf("%s, %d%% reads: %v, %d bytes verified, want %d", c.rw, c.reads, err, res.Verified, fakeSize)
		}
	}
}

// Jobs whose operations overlap, though they begin at different offsets, find what the other wrote.
func TestVerifyOverlap(t *testing.T) { synctest.Test(t, testVerifyOverlap) }

func testVerifyOverlap(t *testing.T) {
	d := &fakeDevice{delay: 100 * time.Microsecond, data: make([]byte, fakeSize)}
	specs := []Spec{verifySpec("randwrite"), verifySpec("randrw")}
	for i := range specs {
		s := &specs[i]
		s.BS[Read], s.BS[Write] = Fixed(8192), Fixed(8192)
		s.Offset, s.Size, s.IODepth = int64(i)*4096, fakeSize/2, 4
	}
	res, err := Run(context.Background(), d, specs, Options{pace: paceByTimer})
	if err != nil {
		t.Fatal(err)
	}
	if g := Group(res.Jobs); g.Verified < fakeSize/2 {
		t.Errorf("%d bytes verified", g.Verified)
	}
}

// hugeDevice claims to be as large as a device can be.
type hugeDevice struct{ *fakeDevice }

func (hugeDevice) Size() int64 { return math.MaxInt64 - fakeBlock + 1 }

// A range that is too large for a ledger is rejected; a part of such a device is checked like any other.
func TestVerifyHuge(t *testing.T) {
	s := verifySpec("write")
	_, err := Run(t.Context(), hugeDevice{&fakeDevice{}}, []Spec{s}, Options{})
	if err == nil || !strings.Contains(err.Error(), "verify=crc32c: the range has ") || !strings.Contains(err.Error(), "smaller size, or a larger bs and, in rw, a distance") {
		t.Error(err)
	}
	s.Size = fakeSize
	res, err := Run(t.Context(), hugeDevice{&fakeDevice{data: make([]byte, fakeSize)}}, []Spec{s}, Options{})
	if err != nil || res.Jobs[0].Verified != fakeSize {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestReadBackToTheEnd: reading back ends at the end of the largest range.
func TestReadBackToTheEnd(t *testing.T) {
	s := verifySpec("write")
	s.NumJobs = 4
	p := newPattern(&s, 0, math.MaxInt64-fakeBlock+1)
	// The ledger knows only the end of the range.
	j := &job{task: &task{spec: &s, base: fakeSize - p.span, ledger: newLedger(4096, fakeSize)}, what: p, position: p.span - 8192}
	if j.prepareCheck(&IO{mem: make([]byte, 4096)}) || j.position != p.span {
		t.Errorf("read back to %d of %d", j.position, p.span)
	}
}

// What a run wrote can be checked by a later one, also in larger pieces.
func TestVerifyLater(t *testing.T) { synctest.Test(t, testVerifyLater) }

func testVerifyLater(t *testing.T) {
	d := &fakeDevice{data: make([]byte, fakeSize)}
	mustRun(t, d, verifySpec("randwrite"))
	for _, bs := range []int{4096, 65536} {
		s := verifySpec("read")
		s.BS[Read] = Fixed(bs)
		if res, err := runOne(d, s); err != nil || res.Verified != fakeSize {
			t.Errorf("in pieces of %d: %v", bs, err)
		}
	}
	d.data[40960+1000] ^= 4
	s := verifySpec("read")
	s.BS[Read] = Fixed(65536)
	_, err := runOne(d, s)
	if ve := (*VerifyError)(nil); !errors.As(err, &ve) || ve.Offset != 40960 {
		t.Errorf("a wrong bit behind other pieces: %v", err)
	}
	s.BS[Read] = Fixed(512)
	if _, err := runOne(d, s); err == nil || !strings.Contains(err.Error(), "--bs") {
		t.Errorf("in pieces of 512: %v", err)
	}
	d.data = make([]byte, fakeSize)
	if _, err := runOne(d, verifySpec("read")); err == nil || !strings.Contains(err.Error(), "no stamp") {
		t.Errorf("of what nobody wrote: %v", err)
	}
}

// Each way in which a device can lie is detected, and reported with its offset.
func TestVerifyFinds(t *testing.T) { synctest.Test(t, testVerifyFinds) }

func testVerifyFinds(t *testing.T) {
	const at = 40960
	for name, c := range map[string]struct {
		lie  func(d *fakeDevice, io *IO)
		says string
	}{
		"a bit": {func(d *fakeDevice, io *IO) {
			if io.Op == Read && io.Offset == at {
				d.mu.Lock()
				d.data[at+1000] ^= 4
				d.mu.Unlock()
			}
		}, "CRC-32C"},
		"another place": {func(d *fakeDevice, io *IO) {
			if io.Op == Read && io.Offset == at {
				d.mu.Lock()
				copy(d.data[at:at+4096], d.data[0:4096])
				d.mu.Unlock()
			}
		}, "the data of offset 0"},
		"a lost write": {func(d *fakeDevice, io *IO) {
			// The write goes to a copy of what an earlier run wrote, which is then discarded.
			if io.Op == Write && io.Offset == at {
				io.Buf = make([]byte, len(io.Buf))
				d.mu.Lock()
				copy(io.Buf, d.data[at:])
				d.mu.Unlock()
			}
		}, "older data"},
		"a torn write": {func(d *fakeDevice, io *IO) {
			// Its first block alone is written.
			if io.Op == Write && io.Offset == at {
				d.mu.Lock()
				io.Buf = append(slices.Clone(io.Buf[:fakeBlock]), d.data[at+fakeBlock:at+4096]...)
				d.mu.Unlock()
			}
		}, "CRC-32C"},
		"nothing": {func(d *fakeDevice, io *IO) {
			if io.Op == Read && io.Offset == at {
				d.mu.Lock()
				clear(d.data[at : at+4096])
				d.mu.Unlock()
			}
		}, "no stamp"},
	} {
		d := &fakeDevice{data: make([]byte, fakeSize)}
		mustRun(t, d, verifySpec("write"))
		d.seen = func(io *IO) { c.lie(d, io) }
		res, err := runOne(d, verifySpec("write"))
		var ve *VerifyError
		if !errors.As(err, &ve) || ve.Offset != at || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want a VerifyError at %d that says %q", name, err, at, c.says)
		}
		if res != nil && res.Errors == 0 {
			t.Errorf("%s: no error is counted", name)
		}
	}
}

// A read during the run that finds other data than was written is reported, even if the data is right in the end.
func TestVerifyFindsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong := int64(-1)
		written := map[int64]bool{}
		d := &fakeDevice{data: make([]byte, fakeSize)}
		d.seen = func(io *IO) {
			switch {
			case wrong >= 0:
				d.data[wrong+1000] &^= 4
			case io.Op == Write:
				written[io.Offset] = true
			case written[io.Offset] && d.data[io.Offset+1000]&4 == 0:
				wrong = io.Offset
				d.data[wrong+1000] |= 4
			}
		}
		s := verifySpec("randrw")
		s.IODepth, s.Loops = 1, 2
		_, err := runOne(d, s)
		if ve := (*VerifyError)(nil); !errors.As(err, &ve) || ve.Offset != wrong {
			t.Errorf("%v, want a VerifyError at %d", err, wrong)
		}
	})
}

// TestVerifyReadsBack: all that was written is read back, and nothing else.
func TestVerifyReadsBack(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Spec)
		reads  int
	}{
		"all":    {func(*Spec) {}, fakeSize / 4096},
		"a part": {func(s *Spec) { s.NumberIOs = 5 }, 5},
		"an end that is no multiple": {func(s *Spec) {
			s.BS[Write], s.Offset = Split{{Bytes: 4096, Percent: 50}, {Bytes: 16384, Percent: 50}}, 4096
		}, fakeSize / 16384},
		"by several":    {func(s *Spec) { s.NumJobs = 3 }, fakeSize / 4096},
		"within a ramp": {func(s *Spec) { s.RampTime = time.Hour }, fakeSize / 4096},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := atomic.Int64{}
				s := verifySpec("write")
				c.change(&s)
				d := &fakeDevice{delay: time.Millisecond, data: make([]byte, fakeSize), seen: func(io *IO) {
					if io.Op != Read {
						return
					}
					reads.Add(1)
					if io.Offset < s.Offset || io.Offset+int64(io.Length) > fakeSize {
						t.Errorf("%d bytes are read back at %d", io.Length, io.Offset)
					}
				}}
				res := mustRun(t, d, s)
				want := fakeSize - s.Offset
				if s.NumberIOs > 0 {
					want = s.NumberIOs * 4096
				}
				if res.Verified != want || reads.Load() != int64(c.reads) {
					t.Errorf("%d bytes are read back by %d reads, want %d by %d", res.Verified, reads.Load(), want, c.reads)
				}
				if n := res.Ops[Read].IOs; n != 0 {
					t.Errorf("%d reads are in the figures", n)
				}
			})
		})
	}
}

// TestVerifyBacklog: after so many writes as the spec says a job reads back what these wrote, or the oldest of them, which
// is in no figure.
func TestVerifyBacklog(t *testing.T) {
	const n = fakeSize / 4096
	for _, rw := range []string{"write", "randwrite", "trimwrite", "randtrimwrite"} {
		for batch, want := range map[int64]uint64{0: n, 4: n - 12, 1: n - 15, 64: n} {
			synctest.Test(t, func(t *testing.T) {
				s := verifySpec(rw)
				s.Backlog, s.BacklogBatch, s.Unread = 16, batch, true
				var reads, writes atomic.Uint64
				d := &fakeDevice{delay: time.Millisecond, data: make([]byte, fakeSize), seen: func(io *IO) {
					switch io.Op {
					case Write:
						writes.Add(1)
					case Read:
						if reads.Add(1) == 1 && (writes.Load() < 16 || writes.Load() > 16+uint64(s.IODepth)) {
							t.Errorf("%s: the first write is read back after %d writes", rw, writes.Load())
						}
					}
				}}
				res := mustRun(t, d, s)
				// What was written last, while nothing was left to write, is only read back at the end.
				last := uint64(16 + s.IODepth)
				if got := reads.Load(); got > want || got+last < want || res.Verified != int64(got)*4096 {
					t.Errorf("%s, %d at a time: %d reads, %d bytes verified, want nearly %d reads", rw, batch, got, res.Verified, want)
				}
				if res.Ops[Read].IOs != 0 || res.Ops[Write].IOs != n || writes.Load() != n {
					t.Errorf("%s, %d at a time: %d reads, %d writes are in the figures", rw, batch, res.Ops[Read].IOs, res.Ops[Write].IOs)
				}
			})
		}
	}
}

// TestVerifyBacklogOrder: whenever so many writes are unread, those that the batch says are read back, the oldest
// first. That is in no figure of a job that ends within its ramp, either.
func TestVerifyBacklogOrder(t *testing.T) {
	const all, half = "w0 w1 w2 w3 r0 r1 r2 r3 w4 w5 w6 w7", "w0 w1 w2 w3 r0 r1 w4 w5 r2 r3 w6 w7"
	for batch, want := range map[int64]string{0: all, 2: half, 4: all, 8: all} {
		synctest.Test(t, func(t *testing.T) {
			s := verifySpec("write")
			s.IODepth, s.NumberIOs, s.Backlog, s.BacklogBatch, s.Unread = 1, 8, 4, batch, true
			s.RampTime = time.Duration(batch) * time.Hour
			var got []string
			res := mustRun(t, &fakeDevice{data: make([]byte, fakeSize), seen: func(io *IO) {
				got = append(got, fmt.Sprintf("%c%d", "rw"[io.Op], io.Offset/4096))
			}}, s)
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%d at a time: %s, want %s", batch, text, want)
			}
			if r, w := res.Ops[Read].IOs, res.Ops[Write].IOs; r != 0 || w != 8 {
				t.Errorf("%d at a time: %d reads and %d writes are in the figures", batch, r, w)
			}
		})
	}
}

// TestVerifyBacklogFinds: what is wrong ends the run soon after it was written.
func TestVerifyBacklogFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const at = 10 * 4096
		s := verifySpec("write")
		s.Backlog = 16
		var writes atomic.Uint64
		d := &fakeDevice{delay: time.Millisecond, data: make([]byte, fakeSize)}
		d.seen = func(io *IO) {
			switch {
			case io.Op == Write:
				writes.Add(1)
			case io.Offset == at:
				d.data[at+1000] ^= 4
			}
		}
		_, err := runOne(d, s)
		if ve := (*VerifyError)(nil); !errors.As(err, &ve) || ve.Offset != at || writes.Load() > 16+2*uint64(s.IODepth) {
			t.Errorf("%v after %d writes, want a VerifyError at %d", err, writes.Load(), at)
		}
	})
}

// TestBacklogMemory: what a job still has to read back takes no more room than twice what it is.
func TestBacklogMemory(t *testing.T) {
	var b backlog
	for i := range int64(10_000) {
		b.add(&IO{Offset: i})
		if b.len() > 16 {
			if p := b.take(); p.offset != i-16 {
				t.Fatalf("%d is taken after %d", p.offset, i)
			}
		}
	}
	if cap(b.places) > 64 || b.len() != 16 {
		t.Errorf("%d places take the room of %d", b.len(), cap(b.places))
	}
}

// crowded returns a spec whose writes all want to go to the same block.
func crowded() Spec {
	s := verifySpec("randwrite")
	s.Distribution, s.Offset, s.Size = Distribution{Zipf, 100}, 64<<10, 16*4096
	s.Runtime, s.TimeBased = time.Minute, true
	return s
}

// TestVerifyCrowded: writes under way never overlap, even if they fill the range to the last block; one that finds no
// place ends the run.
func TestVerifyCrowded(t *testing.T) {
	device := func(t *testing.T) *fakeDevice {
		var mu sync.Mutex
		under := map[int64]bool{}
		d := &fakeDevice{delay: time.Second, data: make([]byte, fakeSize)}
		d.ends = func(io *IO) {
			mu.Lock()
			defer mu.Unlock()
			delete(under, io.Offset)
		}
		d.seen = func(io *IO) {
			mu.Lock()
			defer mu.Unlock()
			if io.Op != Write {
				return
			}
			if under[io.Offset] || io.Offset < 64<<10 || io.Offset >= 128<<10 {
				t.Errorf("a write at %d, while others are under way at %v", io.Offset, under)
			}
			under[io.Offset] = true
		}
		return d
	}
	synctest.Test(t, func(t *testing.T) {
		d := device(t)
		if _, err := Run(t.Context(), d, []Spec{crowded(), crowded()}, Options{}); err != nil || d.deepest.Load() != 16 {
			t.Errorf("%v; %d at a time, want 16", err, d.deepest.Load())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		third := crowded()
		third.IODepth = 1
		_, err := Run(t.Context(), device(t), []Spec{crowded(), crowded(), third}, Options{})
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "every place to write to is being written to") || took > 2*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// An interrupted run is not verified: nobody waits for it.
func TestVerifyInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var reads atomic.Int64
	d := &fakeDevice{data: make([]byte, fakeSize), seen: func(io *IO) {
		if io.Op == Read {
			reads.Add(1)
		}
		cancel()
	}}
	if _, err := Run(ctx, d, []Spec{verifySpec("write")}, Options{}); err != nil || reads.Load() > 0 {
		t.Errorf("%d reads after the interruption, %v", reads.Load(), err)
	}
}

// TestStampedData: no eight bytes of the data that two units, runs or versions have are the same, so that a mixture of
// two writes is noticed.
func TestStampedData(t *testing.T) {
	words := map[[8]byte]bool{}
	n := 0
	for offset := range int64(4) {
		for run := range uint64(4) {
			for version := range uint32(4) {
				unit := make([]byte, 4096)
				writeStamp(unit, offset*4096, 0x1234567+run, 1+version)
				for word := range slices.Chunk(unit[stampSize:], 8) {
					words[[8]byte(word)] = true
					n++
				}
			}
		}
	}
	if len(words) != n {
		t.Errorf("%d of %d words are different", len(words), n)
	}
}

// TestStampLength: a stamp that can't be one, of whatever length, is an error.
func TestStampLength(t *testing.T) {
	for _, length := range []uint32{0, stampSize - 1, 4097, math.MaxUint32} {
		unit := make([]byte, 4096)
		writeStamp(unit, 0, 7, 3)
		binary.LittleEndian.PutUint32(unit[4:], length)
		if err := checkStamps(unit, 0); err == nil || !strings.Contains(err.Error(), "--bs") {
			t.Errorf("%d bytes: %v", length, err)
		}
	}
}

func FuzzStamp(tf *testing.F) {
	f := fuzzing.New(tf)
	b := make([]byte, 4096)
	writeStamp(b, 8192, 7, 3)
	f.Add(b, int64(8192))
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, b []byte, offset int64) {
		s, err := readStamp(b, offset)
		if err == nil && (s.length < stampSize || s.length > len(b) || s.offset != offset) {
			t.Errorf("%+v at %d", s, offset)
		}
		_ = checkStamps(b, offset)
	})
}

// TestLedgerMemory: what --help says about the memory of verify: 4 bytes per unit written, in pages of 16384 units,
// and next to nothing for the rest of the device.
func TestLedgerMemory(t *testing.T) {
	const unit, run = 4096, 16384
	l := newLedger(unit, 1<<40)
	for i := int64(0); i < 10*run; i += 32 {
		l.claim(i*unit, 32*unit)
	}
	l.claim(1<<39, unit)
	l.note(make([]uint32, 1000), 1<<38) // a read takes no memory
	bytes := 0
	for _, p := range l.pages {
		bytes += len(p) * int(unsafe.Sizeof(l.pages[0][0]))
	}
	if want := 4 * run * (10 + 1); bytes != want {
		t.Errorf("%d bytes, want %d", bytes, want)
	}
}
