package persist

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/ncw/directio"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
	"github.com/nvme-anywhere/nvmeof/internal/hangtest"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestOpenApart: creating a volume whose file system hangs holds up nothing that another volume has in flight by io_uring.
// A store to a mapping there, as when a volume is closed, would hold up a processor, or all of this program.
func TestOpenApart(t *testing.T) {
	fast, err := blockdev.OpenFile(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: mib, IO: blockdev.IOUring})
	if err != nil {
		t.Skip(err)
	}
	defer fast.Close()
	mustWrite(t, volumetest.NewClient(fast), directio.AlignedBlock(mib), 0, true)
	dir, _ := disktest.FailingFS(t)
	freeze, thaw := disktest.Freezer(t, dir)
	freeze()
	const reads, long = 200, mib / 2 // more than the disk can do before the file system is met
	var done atomic.Int64
	into := directio.AlignedBlock(long)
	var slow blockdev.Volume
	opened := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for range reads {
			fast.Submit(&blockdev.Request{
				Op: blockdev.OpRead, Length: long, Bufs: [][]byte{into},
				Complete: func(*blockdev.Request) { done.Add(1) },
			})
		}
		var err error
		slow, err = Open(filepath.Join(dir, "v"), blockdev.Options{Size: mib})
		opened <- err
	}()
	ended := soon.Until(func() bool { return done.Load() == reads })
	thaw()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	mustClose(t, slow)
	if !ended {
		t.Error("reads didn't end while another volume was created")
	}
}

// TestCloseApart: nor does closing a volume, which has what was written made durable first.
func TestCloseApart(t *testing.T) {
	hangtest.BusyThread(t)
	for _, mode := range []string{"", modeInPlace} {
		v, err := Open(filepath.Join(t.TempDir(), "v")+mode, blockdev.Options{Size: mib})
		if err != nil {
			t.Fatal(err)
		}
		if !v.Info().VolatileCache {
			mustClose(t, v)
			t.Skip("closing has nothing to do: ", v.Info().Mode)
		}
		mustWrite(t, volumetest.NewClient(v), make([]byte, 4096), 0, false)
		syncs, held := 0, false
		sync := func([]byte) error {
			syncs++
			held = held || hangtest.Busy()
			return nil
		}
		switch v := v.(type) {
		case *atomicVolume:
			v.sync = sync
		case *volume:
			v.sync = sync
		}
		mustClose(t, v)
		if held || syncs == 0 {
			t.Errorf("%s: a read was held up %v, by one of %d syncs", v.Info().Mode, held, syncs)
		}
	}
}

// TestRefreshApart: nor does adding what the file has grown by.
func TestRefreshApart(t *testing.T) {
	hangtest.BusyThread(t)
	path := filepath.Join(t.TempDir(), "v")
	v := mustOpen(t, path, blockdev.Options{Size: mib})
	defer mustClose(t, v)
	told := 0
	v.OnResize(func(int64) {
		if told++; hangtest.Busy() {
			t.Error("a read was held up")
		}
	})
	if err := errors.Join(os.Truncate(path, 8*mib), v.Refresh()); err != nil || told != 1 {
		t.Errorf("told %d times, %v", told, err)
	}
}
