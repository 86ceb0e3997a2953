package persist

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// cachedVolume makes a volume of n blocks in memory that msync would make durable, and counts how
// often that happens.
func cachedVolume(t *testing.T, n uint64) (*atomicVolume, *atomic.Int64) {
	t.Helper()
	const block = 512
	rec := layOut(0, headSize, n, block, true)
	m := &mapping{mem: mapped(t, int(alignUp(rec.end(block), areaAlign))), fs: "simulation"}
	s := &superblock{generation: 1, blockSize: block, extents: []extentRecord{rec}}
	copy(m.mem[superSize:], s.encode())
	v, err := openMapped(m, "simulated", blockdev.Options{}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	syncs := new(atomic.Int64)
	v.sync = func([]byte) error { syncs.Add(1); return nil }
	return v, syncs
}

// TestWritesNeedNoCheckpoint writes the whole volume again and again: as long as nobody flushes, no page is made clean,
// which would cost the next store to it.
func TestWritesNeedNoCheckpoint(t *testing.T) {
	v, syncs := cachedVolume(t, 1024)
	c := volumetest.NewClient(v)
	for range 5 {
		for i := range int64(1024 / 8) {
			mustWrite(t, c, make([]byte, 4096), i*4096, false)
		}
	}
	if n := syncs.Load(); n != 0 || v.free == 0 {
		t.Errorf("%d syncs, %d free blocks", n, v.free)
	}
	v.life.Close()
	v.pool.Close()
	if err := v.unmapOwn(); err != nil {
		t.Error(err)
	}
}

// TestOldChanges: changes that nobody flushes get a checkpoint after a while, and only then.
func TestOldChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, syncs := cachedVolume(t, 64)
		c := volumetest.NewClient(v)
		write := func() {
			mustWrite(t, c, make([]byte, 512), 0, false)
		}
		expect := func(when string, want int64) {
			t.Helper()
			synctest.Wait()
			if n := syncs.Swap(0); n != want {
				t.Errorf("%s: %d syncs, want %d", when, n, want)
			}
		}
		const checkpoint = 2 // the data, and the map
		write()
		time.Sleep(settleAfter / 2)
		write() // the first change's age is what counts
		expect("before", 0)
		time.Sleep(settleAfter / 2)
		expect("after a change became old", checkpoint)
		time.Sleep(3 * settleAfter)
		expect("with no change", 0)
		write()
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		expect("flush", checkpoint)
		time.Sleep(settleAfter - time.Second)
		write()
		time.Sleep(2 * time.Second)
		expect("a change that a flush had made durable is not old", 0)
		time.Sleep(settleAfter)
		expect("the next one is", checkpoint)
		write()
		v.life.Close()
		v.pool.Close()
		if err := v.unmapOwn(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * settleAfter)
		expect("after the end", 0)
	})
}

// TestOldChangesOfSlowDisk: a change that became old while an earlier checkpoint ran gets the next one.
func TestOldChangesOfSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, syncs := cachedVolume(t, 64)
		sync := v.sync
		v.sync = func(b []byte) error {
			time.Sleep(settleAfter)
			return sync(b)
		}
		c := volumetest.NewClient(v)
		for range 2 {
			mustWrite(t, c, make([]byte, 512), 0, false)
			time.Sleep(settleAfter + time.Second)
		}
		time.Sleep(4 * settleAfter)
		if n := syncs.Load(); n != 2*2 {
			t.Errorf("%d syncs, want two checkpoints, of data and map each", n)
		}
		end(t, v)
	})
}

// TestCheckpointFrees: a flush frees every block that was replaced, or discarded, since the one before.
func TestCheckpointFrees(t *testing.T) {
	const n = 256
	v, _ := cachedVolume(t, n)
	defer end(t, v)
	c, all := volumetest.NewClient(v), v.free
	for range 3 {
		for i := range int64(n) {
			mustWrite(t, c, make([]byte, 512), i*512, false)
		}
		if err := c.Flush(); err != nil || v.free != all-n {
			t.Errorf("%d blocks are free, want %d, %v", v.free, all-n, err)
		}
	}
	if err := errors.Join(c.Do(blockdev.Request{Op: blockdev.OpDiscard, Length: n * 512}), c.Flush()); err != nil || v.free != all {
		t.Errorf("%d blocks are free after a discard, want %d, %v", v.free, all, err)
	}
}

// TestFlushBehindFailedOne: a flush that waited for one that failed fails, too: what that one lost is part of what it is
// to make durable, though the system doesn't report it again.
func TestFlushBehindFailedOne(t *testing.T) {
	v, _ := cachedVolume(t, 64)
	defer end(t, v)
	c := volumetest.NewClient(v)
	mustWrite(t, c, make([]byte, 512), 0, false)
	ended := make(chan error, 2)
	flush := func() {
		v.Submit(&blockdev.Request{Op: blockdev.OpFlush, Complete: func(r *blockdev.Request) { ended <- r.Err }})
	}
	untold := error(unix.EIO)
	v.sync = func([]byte) error {
		err := untold
		if err != nil {
			flush()
			untold = nil
		}
		return err
	}
	flush()
	for range 2 {
		if err := <-ended; !errors.Is(err, blockdev.ErrMedium) {
			t.Errorf("flush: %v", err)
		}
	}
}

// TestFailedSync: after a failed msync pages of the working map may be lost, too, and what the disk has in their place
// must not count: each flushed write is there when the volume is reopened.
func TestFailedSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	v := mustOpen(t, path, blockdev.Options{Size: mib})
	if v.kind != onSync {
		t.Skip("no page cache here")
	}
	c := volumetest.NewClient(v)
	for i := range 8 {
		mustWrite(t, c, block(i+1), int64(i)*4096, false)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	sync := v.sync
	v.sync = func(b []byte) error {
		if len(b) == superSize {
			return sync(b)
		}
		return unix.EIO
	}
	if err := c.Write(block(99), 0, true); !errors.Is(err, blockdev.ErrMedium) {
		t.Fatalf("a write that isn't durable: %v", err)
	}
	work := (*v.extents.Load())[0].rec.workOff
	_ = v.Close()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	wantFlushed(t, path, f, work)
}
