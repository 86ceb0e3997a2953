package loadgen

import (
	"context"
	"errors"
	"math"
	"strings"
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
			"align":   func(s *Spec) { s.BS[Write], s.Align[Write] = Fixed(8192), 4096 },
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
	if err == nil || !strings.Contains(err.Error(), "verify=crc32c: the range has ") || !strings.Contains(err.Error(), "smaller size") {
		t.Error(err)
	}
	s.Size = fakeSize
	res, err := Run(t.Context(), hugeDevice{&fakeDevice{data: make([]byte, fakeSize)}}, []Spec{s}, Options{})
	if err != nil || res.Jobs[0].Verified != fakeSize {
		t.Errorf("%+v, %v", res, err)
	}
}

// What a run wrote can be checked by a later one, also in larger pieces.
func TestVerifyLater(t *testing.T) { synctest.Test(t, testVerifyLater) }

func testVerifyLater(t *testing.T) {
	d := &fakeDevice{data: make([]byte, fakeSize)}
	if _, err := runOne(d, verifySpec("randwrite")); err != nil {
		t.Fatal(err)
	}
	for _, bs := range []int{4096, 65536} {
		s := verifySpec("read")
		s.BS[Read] = Fixed(bs)
		if res, err := runOne(d, s); err != nil || res.Verified != fakeSize {
			t.Errorf("in pieces of %d: %v", bs, err)
		}
	}
	s := verifySpec("read")
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
		"nothing": {func(d *fakeDevice, io *IO) {
			if io.Op == Read && io.Offset == at {
				d.mu.Lock()
				clear(d.data[at : at+4096])
				d.mu.Unlock()
			}
		}, "no stamp"},
	} {
		d := &fakeDevice{data: make([]byte, fakeSize)}
		if _, err := runOne(d, verifySpec("write")); err != nil {
			t.Fatal(err)
		}
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
