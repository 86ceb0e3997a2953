package wrap_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
)

// TestCheck changes blocks behind the checker's back.
func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	inner, err := blockdev.OpenFile(path, blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	k := wrap.NewChecker(inner)
	defer k.Close()
	c, behind := volumetest.NewClient(k), volumetest.NewClient(inner)
	b := make([]byte, 64*4096)
	for i := range b {
		b[i] = byte(i / 4096)
	}
	if err := c.Write(b, 0, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: 64 * 4096, Length: 4 * 4096}); err != nil {
		t.Fatal(err)
	}
	if found, err := k.Scrub(t.Context()); err != nil || found != (wrap.Scrubbed{Blocks: 68}) {
		t.Errorf("scrub: %+v, %v", found, err)
	}
	b[5*4096+100] ^= 1
	if err := behind.Write(b[5*4096:][:4096], 5*4096, false); err != nil {
		t.Fatal(err)
	}
	if err := behind.Write(b[:4096], 66*4096, false); err != nil { // zeroes in its place
		t.Fatal(err)
	}
	if err := behind.Write(b[6*4096:][:4096], 67*4096, false); err != nil {
		t.Fatal(err)
	}
	var oe *blockdev.OpError
	err = c.Read(b, 0)
	if !errors.Is(err, wrap.ErrChecksum) || !errors.Is(err, blockdev.ErrMedium) || !errors.As(err, &oe) || oe.Offset != 5*4096 {
		t.Errorf("a changed block is read with %v", err)
	}
	if err := c.Read(b[:5*4096], 0); err != nil {
		t.Errorf("blocks beside it: %v", err)
	}
	if found, err := k.Scrub(t.Context()); !errors.Is(err, wrap.ErrChecksum) || found != (wrap.Scrubbed{Blocks: 68, Bad: 2}) {
		t.Errorf("scrub: %+v, %v", found, err)
	}
	if err := c.Write(b[:4096], 5*4096, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Offset: 67 * 4096, Length: 4096}); err != nil {
		t.Fatal(err)
	}
	if found, err := k.Scrub(t.Context()); err != nil || found.Bad != 0 {
		t.Errorf("scrub after writing anew: %+v, %v", found, err)
	}
}

// byHand is a volume that keeps discarded data, holds writes until the test answers them, and fails reads when told to.
type byHand struct {
	blockdev.Volume
	holds, fails bool
	held         []*blockdev.Request
}

func (h *byHand) Submit(r *blockdev.Request) {
	i := h.Info()
	switch {
	case r.Op == blockdev.OpDiscard:
		r.End(nil)
	case r.Op != blockdev.OpRead && h.holds:
		h.held = append(h.held, r)
	case r.Op == blockdev.OpRead && h.fails:
		r.End(i.Fail(r.Op, r.Offset, blockdev.ErrMedium, nil))
	default:
		h.Volume.Submit(r)
	}
}

// TestCheckKnows: a block's content is known from its first read and from its last write, unless that overlapped
// another write or the block was discarded since.
func TestCheckKnows(t *testing.T) {
	m, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h := &byHand{Volume: m}
	k := wrap.NewChecker(h)
	defer k.Close()
	c, behind := volumetest.NewClient(k), volumetest.NewClient(m)
	fill := func(x byte) []byte { return bytes.Repeat([]byte{x}, 4096) }
	read := func(when string, off int64, x byte, want error) {
		t.Helper()
		got := make([]byte, 4096)
		if err := c.Read(got, off); !errors.Is(err, want) || got[0] != x {
			t.Errorf("%s: %d, %v; want %d, %v", when, got[0], err, x, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	read("never written", 0, 0, nil)
	must(behind.Write(fill(1), 0, false))
	read("changed since it was read", 0, 1, wrap.ErrChecksum)

	must(c.Write(fill(1), 4096, false))
	must(c.Do(blockdev.Request{Op: blockdev.OpDiscard, Offset: 4096, Length: 4096}))
	read("discarded, to no effect", 4096, 1, nil)

	h.holds = true
	for x := range byte(2) { // two overlapping writes that end in the other order
		k.Submit(&blockdev.Request{Op: blockdev.OpWrite, Offset: 8192, Length: 4096, Bufs: [][]byte{fill(1 + x)},
			Complete: func(r *blockdev.Request) { must(r.Err) }})
	}
	must(behind.Write(fill(2), 8192, false))
	h.held[1].End(nil)
	read("one of two ended", 8192, 2, nil)
	h.held[0].End(nil)
	h.holds = false
	read("written by two at once", 8192, 2, nil)
	must(c.Write(fill(3), 8192, false))
	must(behind.Write(fill(4), 8192, false))
	read("changed since one wrote it", 8192, 4, wrap.ErrChecksum)

	failed := errors.New("failed")
	for _, op := range []blockdev.Op{blockdev.OpWrite, blockdev.OpWriteZeroes} {
		h.holds, h.held = true, nil
		k.Submit(&blockdev.Request{Op: op, Offset: 8192, Length: 4096, Bufs: [][]byte{fill(5)}, Complete: func(*blockdev.Request) {}})
		h.held[0].End(failed)
		h.holds = false
		read("not written by a "+op.String()+" that failed", 8192, 4, nil)
	}

	read("apart from the others", 100*4096, 0, nil)
	h.fails = true
	if found, err := k.Scrub(t.Context()); !errors.Is(err, blockdev.ErrMedium) || found.Blocks != 4 || found.Errors != 4 || found.Bad != 0 {
		t.Errorf("a scrub that can't read: %+v, %v", found, err)
	}
	must(k.Close())
	if found, err := k.Scrub(t.Context()); !errors.Is(err, blockdev.ErrGone) || found.Blocks == 4 {
		t.Errorf("a scrub of a closed volume goes on: %+v, %v", found, err)
	}
}

// TestCheckResized: blocks that were cut off aren't known any more when the volume grows again; those before them are.
func TestCheckResized(t *testing.T) {
	const block, size = 4096, 16 << 20
	path := filepath.Join(t.TempDir(), "v")
	inner, err := blockdev.OpenFile(path, blockdev.Options{Size: size, BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	k := wrap.NewChecker(inner)
	defer k.Close()
	c, b := volumetest.NewClient(k), bytes.Repeat([]byte{1}, size)
	for n := range size >> 20 {
		if err := c.Write(b[:1<<20], int64(n)<<20, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []int64{5 * block, size} {
		if err := errors.Join(os.Truncate(path, to), k.Refresh()); err != nil {
			t.Fatal(err)
		}
	}
	found, err := k.Scrub(t.Context())
	if err != nil || found != (wrap.Scrubbed{Blocks: 5}) {
		t.Errorf("scrub: %+v, %v", found, err)
	}
	for off := int64(0); off < size; off += 1 << 20 {
		if err := c.Read(b[:1<<20], off); err != nil {
			t.Error(err)
		}
	}
	if b[0] != 0 {
		t.Error("nothing was cut off")
	}
}

// inHand is a volume whose write waits for the test.
type inHand struct {
	blockdev.Resizer
	held *blockdev.Request
}

func (h *inHand) Submit(r *blockdev.Request) {
	if r.Op == blockdev.OpWrite {
		h.held = r
		return
	}
	h.Resizer.Submit(r)
}

// TestCheckCutDuringWrite: nor is a block that was cut off while it was written.
func TestCheckCutDuringWrite(t *testing.T) {
	const block = 4096
	path := filepath.Join(t.TempDir(), "v")
	inner, err := blockdev.OpenFile(path, blockdev.Options{Size: 2 * block, BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	h := &inHand{Resizer: inner.(blockdev.Resizer)}
	k := wrap.NewChecker(h)
	defer k.Close()
	k.Submit(&blockdev.Request{Op: blockdev.OpWrite, Offset: block, Length: block, Bufs: [][]byte{bytes.Repeat([]byte{1}, block)},
		Complete: func(*blockdev.Request) {}})
	if err := errors.Join(os.Truncate(path, block), k.Refresh()); err != nil {
		t.Fatal(err)
	}
	h.held.End(nil) // it was written before
	if err := errors.Join(os.Truncate(path, 2*block), k.Refresh()); err != nil {
		t.Fatal(err)
	}
	if err := volumetest.NewClient(k).Read(make([]byte, block), block); err != nil {
		t.Errorf("a block that is new: %v", err)
	}
}

// TestCheckRefused: a request that is refused isn't passed on to the volume, which may have grown, so that it would be done
// without the checker's knowledge.
func TestCheckRefused(t *testing.T) {
	const block = 4096
	inner, err := blockdev.OpenFile(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: block, BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	h := &inHand{Resizer: inner.(blockdev.Resizer)}
	k := wrap.NewChecker(h)
	r := &blockdev.Request{Op: blockdev.OpWrite, Offset: block, Length: block, Bufs: [][]byte{make([]byte, block)},
		Complete: func(*blockdev.Request) {}}
	k.Submit(r)
	if h.held != nil {
		t.Error("passed on")
		h.held.End(nil)
	}
	if err := k.Close(); err != nil || !errors.Is(r.Err, blockdev.ErrRange) {
		t.Errorf("%v; %v", r.Err, err)
	}
}

// TestCheckUntouched: what is known of a block isn't changed by a request that is refused, nor by a flush, whatever range
// that has.
func TestCheckUntouched(t *testing.T) {
	m, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	k := wrap.NewChecker(m)
	defer k.Close()
	c, behind := volumetest.NewClient(k), volumetest.NewClient(m)
	const last = 1<<20 - 4096
	b := bytes.Repeat([]byte{1}, 8192)
	if err := c.Write(b[:4096], last, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpFlush, Offset: last, Length: 4096}); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(b[:4096], last); err != nil {
		t.Errorf("after a flush: %v", err)
	}
	if err := c.Write(b, last, false); !errors.Is(err, blockdev.ErrRange) {
		t.Fatalf("a write beyond the end: %v", err)
	}
	if err := behind.Write(make([]byte, 4096), last, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(b[:4096], last); !errors.Is(err, wrap.ErrChecksum) {
		t.Errorf("changed after a write that was refused: %v", err)
	}
}

// TestCheckLoan: a wrapper lends nothing, so a write from a loan is refused.
func TestCheckLoan(t *testing.T) {
	c := volumetest.NewClient(open(t, "check:mem:64KiB"))
	if err := c.Do(blockdev.Request{Op: blockdev.OpWrite, Length: 4096, Loan: 1}); !errors.Is(err, blockdev.ErrInvalid) {
		t.Error(err)
	}
}

// TestCheckPieces: what is known of a long range doesn't reach beyond it, wherever it begins and ends.
func TestCheckPieces(t *testing.T) {
	const first, n, blocks = 512, 2048, 4096
	m, err := blockdev.NewMemory(blockdev.Options{Size: blocks * 4096})
	if err != nil {
		t.Fatal(err)
	}
	ones := bytes.Repeat([]byte{1}, 4096)
	if err := volumetest.NewClient(m).Write(bytes.Repeat(ones, blocks), 0, false); err != nil {
		t.Fatal(err)
	}
	k := wrap.NewChecker(m)
	defer k.Close()
	c := volumetest.NewClient(k)
	if err := c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: first * 4096, Length: n * 4096}); err != nil {
		t.Fatal(err)
	}
	if found, err := k.Scrub(t.Context()); err != nil || found != (wrap.Scrubbed{Blocks: n}) {
		t.Errorf("scrub: %+v, %v", found, err)
	}
	for b := int64(0); b < blocks; b += 256 {
		if err := c.Read(make([]byte, 4096), b*4096); err != nil {
			t.Error(err)
		}
	}
	for b := int64(0); b < blocks; b += 128 { // every other one was not read before
		if err := volumetest.NewClient(m).Write(bytes.Repeat([]byte{2}, 4096), b*4096, false); err != nil {
			t.Fatal(err)
		}
		known := b%256 == 0 || b >= first && b < first+n
		if err := c.Read(make([]byte, 4096), b*4096); errors.Is(err, wrap.ErrChecksum) != known {
			t.Errorf("block %d, changed: %v", b, err)
		}
	}
}

// TestCheckLarge: a discard, or write zeroes, of very many blocks takes little memory, and what is known of blocks
// around and among them is kept.
func TestCheckLarge(t *testing.T) {
	const size, most = int64(1) << 40, 64 << 20 // 268 million blocks
	v, err := blockdev.NewNull(blockdev.Options{Size: size})
	if err != nil {
		t.Fatal(err)
	}
	h := &byHand{Volume: v}
	k := wrap.NewChecker(h)
	defer k.Close()
	c := volumetest.NewClient(k)
	must := func(r blockdev.Request) {
		t.Helper()
		if err := c.Do(r); err != nil {
			t.Fatal(err)
		}
	}
	read := func(b int64, want error) {
		t.Helper()
		if err := c.Read(make([]byte, 4096), b*4096); !errors.Is(err, want) {
			t.Errorf("block %d: %v, want %v", b, err, want)
		}
	}
	ones := [][]byte{bytes.Repeat([]byte{1}, 4096)} // which a null volume forgets
	write := func(b int64) {
		must(blockdev.Request{Op: blockdev.OpWrite, Offset: b * 4096, Length: 4096, Bufs: ones})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	write(0)
	write(5000)
	must(blockdev.Request{Op: blockdev.OpDiscard, Offset: 4096, Length: size - 4096})
	read(0, wrap.ErrChecksum)
	read(5000, nil)
	must(blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: 4096, Length: size - 2*4096})
	write(5000)
	write(9000)
	for b, want := range map[int64]error{4999: nil, 5000: wrap.ErrChecksum, 5001: nil, 9000: wrap.ErrChecksum, size/4096 - 1: nil} {
		read(b, want)
	}

	h.holds = true
	done := func(*blockdev.Request) {}
	k.Submit(&blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: 0, Length: size, Complete: done})
	k.Submit(&blockdev.Request{Op: blockdev.OpWrite, Offset: 7000 * 4096, Length: 4096, Bufs: ones, Complete: done})
	h.held[1].End(nil)
	h.held[0].End(nil)
	h.holds = false
	read(7000, nil) // the two overlapped
	write(7001)
	read(7001, wrap.ErrChecksum)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Errorf("%d MiB allocated", took>>20)
	}
}

// TestScrubFrozen: a scrub of a volume that hangs ends with its context, and the volume can be closed.
func TestScrubFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := open(t, "check:freeze:manual:mem:1MiB")
		if err := volumetest.NewClient(v).Write(make([]byte, 4096), 0, false); err != nil {
			t.Fatal(err)
		}
		wrap.Find[*wrap.Freezer](v)[0].Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := wrap.Find[*wrap.Checker](v)[0].Scrub(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("scrub: %v", err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
}

// cancelling is a volume that cancels something with the second request that it gets.
type cancelling struct {
	blockdev.Volume
	requests int
	cancel   func()
}

func (v *cancelling) Submit(r *blockdev.Request) {
	if v.requests++; v.requests == 2 {
		v.cancel()
	}
	v.Volume.Submit(r)
}

// TestScrubCut: a scrub that is cut short says what it has found until then.
func TestScrubCut(t *testing.T) {
	m, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	v := &cancelling{Volume: m, cancel: func() {}}
	k := wrap.NewChecker(v)
	defer k.Close()
	if err := volumetest.NewClient(k).Write(make([]byte, 1<<20), 0, false); err != nil {
		t.Fatal(err)
	}
	if err := volumetest.NewClient(m).Write(bytes.Repeat([]byte{1}, 4096), 4096, false); err != nil {
		t.Fatal(err)
	}
	for range 20 { // it notices while it reads, or before it reads on
		ctx, cancel := context.WithCancel(t.Context())
		v.requests, v.cancel = 0, cancel
		if found, err := k.Scrub(ctx); !errors.Is(err, wrap.ErrChecksum) || found.Bad != 1 || found.Blocks == 256 {
			t.Errorf("%+v, %v", found, err)
		}
	}
}
