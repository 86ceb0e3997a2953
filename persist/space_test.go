package persist

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// TestFreedOnce: unmapping a range of which only the beginning was written frees what was written, each block once. A
// block that was freed again might by then hold another logical block's data.
func TestFreedOnce(t *testing.T) {
	const written, all = publishStep, 3 * publishStep
	path := filepath.Join(t.TempDir(), "volume")
	nothing := &lineFlusher{name: "none", line: simLine, flush: func(unsafe.Pointer, uintptr) {}, fence: func() {}}
	v, err := openAtomicDAX(path, blockdev.Options{Size: mib, BlockSize: 512}, nothing)
	if err != nil {
		t.Fatal(err)
	}
	c := volumetest.NewClient(v)
	empty := v.free
	mustWrite(t, c, make([]byte, written*512), 0, false)
	if v.free != empty-written {
		t.Errorf("%d blocks of %d free with %d written", v.free, empty, written)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Length: all * 512}); err != nil {
		t.Fatal(err)
	}
	if v.free != empty {
		t.Errorf("%d blocks of %d free in the end", v.free, empty)
	}
	mustClose(t, v)
}

// TestChangesCounted: a checkpoint has to do with blocks that have changed since the last one, each counted once. To
// discard a block that was never written is no change: it would cost a sparse file space for its map.
func TestChangesCounted(t *testing.T) {
	v, syncs := cachedVolume(t, 1024)
	c := volumetest.NewClient(v)
	discard := blockdev.Request{Op: blockdev.OpDiscard, Length: 1024 * 512}
	if err := errors.Join(c.Do(discard), c.Flush()); err != nil {
		t.Fatal(err)
	}
	if n := syncs.Load(); n != 0 || v.dirty != 0 {
		t.Errorf("%d syncs, %d changes of nothing", n, v.dirty)
	}
	for range 2 {
		mustWrite(t, c, make([]byte, 3*512), 512, false)
	}
	if v.dirty != 3 {
		t.Errorf("%d changes of three blocks", v.dirty)
	}
	if err := c.Do(discard); err != nil {
		t.Fatal(err)
	}
	if v.dirty != 3 {
		t.Errorf("%d changes of three blocks that were discarded", v.dirty)
	}
	if err := c.Flush(); err != nil || syncs.Load() == 0 || v.dirty != 0 {
		t.Errorf("flush: %v, %d syncs, %d changes left", err, syncs.Load(), v.dirty)
	}
	end(t, v)
}

// waitingWrite lends all free blocks, and submits a write, which waits for one.
func waitingWrite(t *testing.T, v *atomicVolume) (ended chan error, loans []blockdev.LoanToken) {
	t.Helper()
	v.low = -1 // no checkpoint helps it
	for v.free > 0 {
		_, loan, err := v.Lend(nil, int64(min(v.free, 64))*512)
		if err != nil {
			t.Fatal(err)
		}
		loans = append(loans, loan)
	}
	ended = make(chan error, 1)
	v.Submit(&blockdev.Request{Op: blockdev.OpWrite, Length: 512, Bufs: [][]byte{make([]byte, 512)},
		Complete: func(r *blockdev.Request) { ended <- r.Err }})
	if v.waiting.first == nil {
		t.Fatal("the write doesn't wait")
	}
	return ended, loans
}

// TestWaitingWriteFails: a write that waits for a free block ends when the volume fails, and later ones are refused.
// Existing data can still be read.
func TestWaitingWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := cachedVolume(t, 1024)
		c := volumetest.NewClient(v)
		mustWrite(t, c, make([]byte, 512), 0, false)
		ended, loans := waitingWrite(t, v)
		v.sync = func([]byte) error { return unix.EIO }
		if err := c.Flush(); !errors.Is(err, blockdev.ErrMedium) {
			t.Errorf("flush: %v", err)
		}
		if err := <-ended; !errors.Is(err, blockdev.ErrMedium) {
			t.Errorf("the write that waited: %v", err)
		}
		for _, loan := range loans {
			v.Return(loan)
		}
		if err := c.Write(make([]byte, 512), 0, false); !errors.Is(err, blockdev.ErrMedium) {
			t.Errorf("a write after that: %v", err)
		}
		if err := c.Read(make([]byte, 512), 0); err != nil {
			t.Errorf("read: %v", err)
		}
		end(t, v)
	})
}

// TestWriteMeetsFailure: a write that was begun just before the volume failed, and finds no free block then, ends: nobody
// would free one for it.
func TestWriteMeetsFailure(t *testing.T) {
	v, _ := cachedVolume(t, 64)
	loans := lendAll(t, v)
	r := &blockdev.Request{Op: blockdev.OpWrite, Length: 512, Bufs: [][]byte{make([]byte, 512)}}
	var ended error
	r.Complete = func(r *blockdev.Request) { ended = r.Err }
	if err := v.check(r); err != nil || !v.life.Enter() {
		t.Fatal(err)
	}
	v.fail(unix.EIO)
	v.write(r) // what Submit does next
	if !errors.Is(ended, blockdev.ErrMedium) {
		t.Errorf("the write ended with %v", ended)
	}
	for _, l := range loans {
		v.Return(l)
	}
	end(t, v)
}

// TestMapFaults: if an entry of the map couldn't be made durable nothing is written any more: it isn't known which of
// its contents the block has after a power failure. Data can still be read.
func TestMapFaults(t *testing.T) {
	var f faulty
	v, err := openAtomicDAX(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: mib}, f.flusher())
	if err != nil {
		t.Fatal(err)
	}
	c := volumetest.NewClient(v)
	mustWrite(t, c, block(1), 0, false)
	f.missing = bytesOf((*v.extents.Load())[0].table)
	if err := c.Write(block(2), 4096, false); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("a write whose entry faults: %v", err)
	}
	f.missing = nil
	if err := c.Write(block(3), 8192, false); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("a write after that: %v", err)
	}
	got := make([]byte, 4096)
	if err := c.Read(got, 0); err != nil || got[0] != 1 {
		t.Errorf("read: %v, %d…", err, got[0])
	}
	if err := v.Close(); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("close: %v", err)
	}
}

// wantServed wants the write of waitingWrite to be over, and ends the volume.
func wantServed(t *testing.T, v *atomicVolume, ended chan error, loans []blockdev.LoanToken) {
	t.Helper()
	synctest.Wait()
	isServed(t, v, ended, loans)
	end(t, v)
}

// isServed wants the write of waitingWrite to be over, and returns the loans.
func isServed(t *testing.T, v *atomicVolume, ended chan error, loans []blockdev.LoanToken) {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Error("the write still waits")
	}
	for _, loan := range loans {
		v.Return(loan)
	}
}

// TestDiscardServes: a discard frees blocks that the last checkpoint doesn't know, and a write that waits for one
// continues.
func TestDiscardServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := cachedVolume(t, 1024)
		c := volumetest.NewClient(v)
		mustWrite(t, c, make([]byte, 512), 512, false)
		ended, loans := waitingWrite(t, v)
		if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Offset: 512, Length: 512}); err != nil {
			t.Fatal(err)
		}
		wantServed(t, v, ended, loans)
	})
}

// TestGrowthServes: growth adds free blocks, and a write that waits for one continues.
func TestGrowthServes(t *testing.T) {
	path := filepath.Join(shm(t), "v")
	v := mustOpen(t, path, blockdev.Options{Size: mib, BlockSize: 512})
	ended, loans := waitingWrite(t, v)
	lengthen(t, path, 8*mib)
	if err := v.Refresh(); err != nil {
		t.Fatal(err)
	}
	isServed(t, v, ended, loans)
	want := -1 // what was written
	for _, x := range v.super.extents {
		want += int(x.dataBlocks)
	}
	if v.free != want {
		t.Errorf("%d blocks are free, want %d", v.free, want)
	}
	mustClose(t, v)
}

// TestReaderMeetsGrowth: a reader that began before a volume grew finds a block that was written to the new part since.
func TestReaderMeetsGrowth(t *testing.T) {
	path := filepath.Join(shm(t), "v")
	v := mustOpen(t, path, blockdev.Options{Size: mib, BlockSize: 512})
	ended, loans := waitingWrite(t, v)
	xs := *v.extents.Load()
	lengthen(t, path, 8*mib)
	if err := v.Refresh(); err != nil {
		t.Fatal(err)
	}
	isServed(t, v, ended, loans)
	b, ok, err := v.pinned(xs, 0, 1)
	if err != nil || !ok || b.x == xs[0] {
		t.Fatalf("the block is in the old part: %v; pinned: %v, %v", b.x == xs[0], ok, err)
	}
	v.unpin(b)
	mustClose(t, v)
}

// TestReleaseServes: a view that ends frees blocks that were replaced meanwhile, and a write that waits for one
// continues.
func TestReleaseServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := cachedVolume(t, 1024)
		c := volumetest.NewClient(v)
		mustWrite(t, c, make([]byte, 512), 512, false)
		_, view, err := v.View(nil, 512, 512)
		if err := errors.Join(err, c.Write(make([]byte, 512), 512, false)); err != nil { // which goes elsewhere
			t.Fatal(err)
		}
		ended, loans := waitingWrite(t, v)
		v.Release(view)
		wantServed(t, v, ended, loans)
	})
}
