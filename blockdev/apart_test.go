package blockdev_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ncw/directio"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// freezingFS mounts a file system that freeze makes block every change, until thaw.
func freezingFS(t *testing.T, kind string) (dir string, freeze, thaw func()) {
	t.Helper()
	dir = disktest.Mount(t, disktest.Image(t, 320*mib), "mkfs."+kind) // an XFS needs at least 300
	freeze, thaw = disktest.Freezer(t, dir)
	return dir, freeze, thaw
}

// readsBeside is the number of reads that are in flight beside a volume that hangs.
const readsBeside = 32

// submitReads submits them to another volume; done counts those that have ended.
func submitReads(v blockdev.Volume, done *atomic.Int64) {
	const block = 4096
	for i := range int64(readsBeside) {
		v.Submit(&blockdev.Request{
			Op: blockdev.OpRead, Offset: 7 * i * block, Length: block, Bufs: [][]byte{directio.AlignedBlock(block)},
			Complete: func(*blockdev.Request) { done.Add(1) },
		})
	}
}

// mustEndBeside submits reads on a thread that then makes a call, which hangs until thaw. It returns the call's error.
func mustEndBeside(t *testing.T, reads blockdev.Volume, thaw func(), call func() error) error {
	t.Helper()
	var done atomic.Int64
	returned := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		submitReads(reads, &done)
		returned <- call()
	}()
	ended := soon.Until(func() bool { return done.Load() == readsBeside })
	thaw()
	err := <-returned
	if !ended {
		t.Fatal("reads didn't end beside a call that hangs")
	}
	return err
}

// TestHangingNeighbor: a volume that hangs holds up nothing that another has in flight by io_uring. Such requests are
// completed by the threads that submitted them, so those threads must not be the ones that hang.
func TestHangingNeighbor(t *testing.T) {
	for name, x := range map[string]struct {
		fs string
		io blockdev.IOMode
		op blockdev.Op
	}{
		"workers":             {"ext4", blockdev.IOUring, blockdev.OpDiscard},
		"writer":              {"ext4", blockdev.IOBuffered, blockdev.OpWrite},
		"io_submit of writes": {"ext4", blockdev.IODirect, blockdev.OpWrite},
		"writer, XFS":         {"xfs", blockdev.IOBuffered, blockdev.OpWrite}, // which has writes with RWF_NOWAIT
		"writer, Btrfs":       {"btrfs", blockdev.IOBuffered, blockdev.OpWrite},
	} {
		t.Run(name, func(t *testing.T) { testHangingNeighbor(t, x.fs, x.io, x.op) })
	}
}

func testHangingNeighbor(t *testing.T, fs string, io blockdev.IOMode, op blockdev.Op) {
	dir, freeze, thaw := freezingFS(t, fs)
	open := func(dir string, io blockdev.IOMode) blockdev.Volume {
		v, err := blockdev.OpenFile(filepath.Join(dir, "v"), blockdev.Options{Size: mib, IO: io})
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { v.Close() })
		if err := volumetest.NewClient(v).Write(directio.AlignedBlock(mib), 0, true); err != nil {
			t.Fatal(err)
		}
		return v
	}
	slow, fast := open(dir, io), open(t.TempDir(), blockdev.IOUring)
	t.Cleanup(thaw)
	const block = 4096
	for range 20 {
		freeze()
		var done atomic.Int64
		submitReads(fast, &done)
		hung := make(chan error, 1)
		var submitted atomic.Bool
		go func() {
			slow.Submit(&blockdev.Request{
				Op: op, Length: block, Bufs: [][]byte{directio.AlignedBlock(block)},
				Complete: func(r *blockdev.Request) { hung <- r.Err },
			})
			submitted.Store(true)
		}()
		// With io_submit, Submit may block if nobody receives packets.
		returned := func() bool { return submitted.Load() || io == blockdev.IODirect }
		if !soon.Until(func() bool { return done.Load() == readsBeside }) {
			t.Fatalf("%d of %d reads have ended while a %v elsewhere hangs", done.Load(), readsBeside, op)
		}
		if !soon.Until(returned) {
			t.Fatalf("a %v on a frozen file system isn't left to others", op)
		}
		select {
		case err := <-hung:
			t.Fatalf("a %v on a frozen file system ended: %v", op, err)
		default:
		}
		thaw()
		if err := <-hung; err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefreshApart: nor does the query of a device's size, which the kernel answers only after the device has zeroed what
// it is zeroing.
func TestRefreshApart(t *testing.T) {
	dir, freeze, thaw := freezingFS(t, "ext3") // where the system has to write the zeroes itself
	backing := filepath.Join(dir, "backing")
	if err := os.WriteFile(backing, make([]byte, mib), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(path string) blockdev.Volume {
		v, err := blockdev.OpenFile(path, blockdev.Options{Size: mib, IO: blockdev.IOUring})
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { v.Close() })
		if err := volumetest.NewClient(v).Write(directio.AlignedBlock(mib), 0, true); err != nil {
			t.Fatal(err)
		}
		return v
	}
	dev := disktest.LoopDevice(t, backing)
	slow, fast := open(dev), open(filepath.Join(t.TempDir(), "v"))
	t.Cleanup(thaw)
	for range 10 {
		freeze()
		zeroed := make(chan error, 1)
		slow.Submit(&blockdev.Request{
			Op: blockdev.OpWriteZeroes, Length: mib, Complete: func(r *blockdev.Request) { zeroed <- r.Err },
		})
		zeroing := func() bool {
			b, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/inflight")
			return err == nil && !slices.Equal(strings.Fields(string(b)), []string{"0", "0"})
		}
		if !soon.Until(zeroing) {
			t.Fatal("the zeroes aren't on their way")
		}
		err := mustEndBeside(t, fast, thaw, slow.(blockdev.Resizer).Refresh)
		if err := errors.Join(<-zeroed, err); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemoveApart: nor does the removal of a volume from a directory.
func TestRemoveApart(t *testing.T) {
	dir, freeze, thaw := freezingFS(t, "ext4")
	d, err := blockdev.OpenDirectory(dir, mib, blockdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	fast, err := blockdev.OpenFile(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: mib, IO: blockdev.IOUring})
	if err != nil {
		t.Skip(err)
	}
	defer fast.Close()
	if err := volumetest.NewClient(fast).Write(directio.AlignedBlock(mib), 0, true); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		v, err := d.Create("v", mib, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		freeze()
		if err := mustEndBeside(t, fast, thaw, func() error { return d.Remove("v") }); err != nil {
			t.Fatal(err)
		}
	}
}
