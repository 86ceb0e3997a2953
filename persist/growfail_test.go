package persist

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestGrowthIsTold: the system reports a failed write-back once, to whatever syncs next, and that may be a volume that
// grows. After that no flush promises the lost data.
func TestGrowthIsTold(t *testing.T) {
	path, _ := filled(t)
	v := mustOpen(t, path, blockdev.Options{})
	defer v.Close()
	if v.kind != onSync {
		t.Skip("no page cache here")
	}
	c := volumetest.NewClient(v)
	mustWrite(t, c, block(99), 0, false)
	sync, untold := v.sync, error(unix.EIO)
	v.sync = func(b []byte) error {
		err := untold
		untold = nil
		return errors.Join(err, sync(b))
	}
	lengthen(t, path, 8*mib)
	if err := v.Refresh(); !errors.Is(err, unix.EIO) {
		t.Errorf("growing: %v", err)
	}
	if err := c.Flush(); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("a flush of what was lost: %v", err)
	}
	if err := v.Refresh(); !errors.Is(err, unix.EIO) || v.super.session != unsure {
		t.Errorf("growing again: %v; unsure is %v", err, v.super.session == unsure)
	}
}

// TestGrowthFailsDuringFlush: a flush that has begun while the volume grows fails if the growth was told what is lost.
func TestGrowthFailsDuringFlush(t *testing.T) {
	path, _ := filled(t)
	v := mustOpen(t, path, blockdev.Options{})
	defer v.Close()
	if v.kind != onSync {
		t.Skip("no page cache here")
	}
	mustWrite(t, volumetest.NewClient(v), block(99), 0, false)
	flushed := make(chan error, 1)
	sync, untold := v.sync, error(unix.EIO)
	v.sync = func(b []byte) error {
		err := untold
		if untold = nil; err == nil {
			return sync(b)
		}
		v.Submit(&blockdev.Request{Op: blockdev.OpFlush, Complete: func(r *blockdev.Request) { flushed <- r.Err }})
		for begun := false; !begun; runtime.Gosched() {
			v.mu.Lock()
			begun = v.dirty == 0
			v.mu.Unlock()
		}
		return err
	}
	lengthen(t, path, 8*mib)
	if err := v.Refresh(); !errors.Is(err, unix.EIO) {
		t.Errorf("growing: %v", err)
	}
	if err := <-flushed; !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("flush: %v", err)
	}
}

// TestGrowthNotDurable: a volume doesn't have what it grew by if that has maps which the system couldn't make durable.
func TestGrowthNotDurable(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path, _ := filled(t)
	v := mustOpen(t, path, blockdev.Options{})
	lengthen(t, path, 8*mib)
	failed := sandbox.FailOnce(t, unix.SYS_FDATASYNC, unix.EIO)
	if err := v.Refresh(); !failed() || !errors.Is(err, unix.EIO) {
		t.Errorf("growing: %v; refused: %v", err, failed())
	}
	if n := v.Info().Size; n != 4*mib {
		t.Errorf("it has %d bytes", n)
	}
	v.Close()
	if r := mustCheck(t, path, false); r.Extents != 1 {
		t.Errorf("it has %d extents", r.Extents)
	}
}

// TestGrowthNamedOnce: if only one of the superblock's copies could be written the volume doesn't have what it grew by,
// and grows the next time.
func TestGrowthNamedOnce(t *testing.T) {
	var f faulty
	v, err := openAtomicDAX(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: 4 * mib}, f.flusher())
	if err != nil {
		t.Fatal(err)
	}
	v.m.dax = false // as what it grows by will be
	before := v.Info().Size
	lengthen(t, v.info.Path, 8*mib)
	other := v.super.generation % superCopies * superSize // the second that is written: it holds the present one
	f.missing = v.m.mem[other:][:superSize]
	if err := v.Refresh(); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("growing: %v", err)
	}
	if n := v.Info().Size; n != before {
		t.Errorf("it has %d bytes then, and had %d", n, before)
	}
	f.missing = nil
	if err := v.Refresh(); err != nil {
		t.Error(err)
	}
	size := v.Info().Size
	if size <= before {
		t.Fatalf("it has %d bytes in the end, and had %d", size, before)
	}
	if err := volumetest.NewClient(v).Write(block(9), size-4096, true); err != nil {
		t.Error(err)
	}
	mustClose(t, v)
	v = mustOpen(t, v.info.Path, blockdev.Options{ReadOnly: true})
	if n := v.Info().Size; n != size {
		t.Errorf("it has %d bytes when it is opened again, and had %d", n, size)
	}
	mustClose(t, v)
}

// TestGrowthCutShort: if a power failure came between the two copies of the superblock that name what the volume grew
// by, nothing written there is lost with the one that does.
func TestGrowthCutShort(t *testing.T) {
	for name, dir := range map[string]func(*testing.T) string{"disk": disk, "tmpfs": shm} {
		t.Run(name, func(t *testing.T) {
			path, was := filledIn(t, dir(t))
			lengthen(t, path, 8*mib)
			mustClose(t, mustOpen(t, path, blockdev.Options{})) // which grows it
			m := mapVolume(t, path)
			s, _ := readSuper(m)
			was.generation, was.session = s.generation-1, s.session
			if err := errors.Join(m.put(m.mem[was.generation%superCopies*superSize:], was.encode()), m.close()); err != nil {
				t.Fatal(err)
			}

			v := mustOpen(t, path, blockdev.Options{})
			last := v.Info().Size - 4096
			mustWrite(t, volumetest.NewClient(v), block(99), last, true)
			newest := v.super.generation % superCopies * superSize
			abandon(t, v)
			patch(t, path, int64(newest), []byte("damaged"))
			v = mustOpen(t, path, blockdev.Options{})
			defer mustClose(t, v)
			got := make([]byte, 4096)
			if err := volumetest.NewClient(v).Read(got, last); err != nil || got[0] != 99 {
				t.Errorf("what was written: %v, %d…", err, got[0])
			}
		})
	}
}

// TestGrowthWithoutMemory: a volume that has no memory for what it grows by stays as it was, and grows the next time.
func TestGrowthWithoutMemory(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path, _ := filled(t)
	v := mustOpen(t, path, blockdev.Options{})
	defer v.Close()
	const more = 16384 * mib
	lengthen(t, path, more)
	before := v.Info().Size
	runtime.KeepAlive(make([]byte, 4*mib)) // room in Go's heap, which can't grow either, for the set of free blocks
	runtime.GC()
	restore := limitMemory(t, more+2*mib) // the counts of its views take 4 MiB
	err := v.Refresh()
	restore()
	if !errors.Is(err, unix.ENOMEM) {
		t.Errorf("growing without memory: %v", err)
	}
	if n := v.Info().Size; n != before {
		t.Errorf("it has %d bytes then, and had %d", n, before)
	}
	if err := v.Refresh(); err != nil {
		t.Error(err)
	}
	size := v.Info().Size
	if size <= before {
		t.Fatalf("it has %d bytes in the end, and had %d; the superblock says %d", size, before, v.super.blocks()*4096)
	}
	if n, want := v.super.blocks(), uint64(size)/4096; n != want {
		t.Errorf("the superblock says %d blocks, the volume has %d", n, want)
	}
	c := volumetest.NewClient(v)
	got := make([]byte, 4096)
	for _, off := range []int64{before - 4096, before, size - 4096} {
		if err := errors.Join(c.Write(block(9), off, true), c.Read(got, off)); err != nil || !bytes.Equal(got, block(9)) {
			t.Errorf("at %d: %v", off, err)
		}
	}
}

// limitMemory limits the program's address space to its present size plus the given number of bytes.
func limitMemory(t *testing.T, more uint64) (restore func()) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &was); err != nil {
		t.Fatal(err)
	}
	now := was
	now.Cur = pages*uint64(os.Getpagesize()) + more
	if now.Cur > was.Max {
		t.Skip("less memory is allowed")
	}
	collect := debug.SetGCPercent(-1) // which may need memory, too
	if err := unix.Setrlimit(unix.RLIMIT_AS, &now); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_AS, &was); err != nil {
			t.Fatal(err)
		}
		debug.SetGCPercent(collect)
	}
}
