package blockdev_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
)

func TestBlockDevice(t *testing.T) {
	const size = 4 * mib
	dev := loopDevice(t, size)
	v, err := blockdev.OpenFile(dev, blockdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if i := v.Info(); i.Size != size || i.BlockSize != 512 || !strings.HasPrefix(i.Mode, "direct") {
		t.Errorf("%+v", i)
	}
	mustFail(t, tryOpen(t, dev, blockdev.Options{}), blockdev.ErrBusy, "by this program")
	v.Close()
	if v, err = blockdev.OpenFile(dev, blockdev.Options{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	mustFail(t, tryOpen(t, dev, blockdev.Options{ReadOnly: true}), blockdev.ErrBusy, "by this program")
	v.Close()
	mustFail(t, tryOpen(t, dev, blockdev.Options{Size: 2 * size}), blockdev.ErrInvalid)
	volumetest.Run(t, volumetest.Config{
		Size: size,
		New: func(t *testing.T) opener {
			if strings.HasSuffix(t.Name(), "options") {
				return blockdev.NewMemory // a device can't be created with a size
			}
			zero(t, dev)
			return func(o blockdev.Options) (blockdev.Volume, error) { return blockdev.OpenFile(dev, o) }
		},
	})
}

// TestDeviceNodeRemoved: a device keeps what hosts write, even if the node by which it was opened is removed.
func TestDeviceNodeRemoved(t *testing.T) {
	var st unix.Stat_t
	if err := unix.Stat(loopDevice(t, 4*mib), &st); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(t.TempDir(), "node")
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(st.Rdev)); err != nil {
		t.Skip(err)
	}
	v, err := blockdev.OpenFile(node, blockdev.Options{})
	if errors.Is(err, unix.EACCES) {
		t.Skip("devices can't be used in the test's directory:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := os.Remove(node); err != nil {
		t.Fatal(err)
	}
	if err := v.(blockdev.Resizer).Refresh(); err != nil {
		t.Error(err)
	}
}

// TestDeviceLookedAt: a device that is locked for a moment, as by udev, can be opened; one that stays locked is
// refused.
func TestDeviceLookedAt(t *testing.T) {
	dev := loopDevice(t, 4*mib)
	f, err := os.Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	mustFail(t, tryOpen(t, dev, blockdev.Options{}), blockdev.ErrBusy, "locked by this program")
	unlocked := make(chan error)
	time.AfterFunc(50*time.Millisecond, func() { unlocked <- unix.Flock(int(f.Fd()), unix.LOCK_UN) })
	if err := tryOpen(t, dev, blockdev.Options{}); err != nil {
		t.Error(err)
	}
	if err := <-unlocked; err != nil {
		t.Error(err)
	}
}

// flushes returns how often the system made a device flush its cache.
func flushes(t *testing.T, dev string) int {
	t.Helper()
	b, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/stat")
	if err != nil {
		t.Skip(err)
	}
	const field = 15 // since Linux 5.5
	all := strings.Fields(string(b))
	if len(all) <= field {
		t.Skipf("the system doesn't count flushes: %s", b)
	}
	n, err := strconv.Atoi(all[field])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBlockDeviceFlushes: a request that must be durable when it completes makes a device flush, in any mode; a write
// that needn't be doesn't wait for that.
func TestBlockDeviceFlushes(t *testing.T) {
	dev := loopDevice(t, 4*mib)
	for _, mode := range []blockdev.IOMode{blockdev.IODirect, blockdev.IOUring, blockdev.IOBuffered} {
		v, err := blockdev.OpenFile(dev, blockdev.Options{IO: mode})
		if err != nil {
			t.Logf("mode %d: %v", mode, err)
			continue
		}
		c, b := volumetest.NewClient(v), directio.AlignedBlock(4096)
		for _, r := range []blockdev.Request{
			{Op: blockdev.OpWrite, Bufs: [][]byte{b}}, {Op: blockdev.OpWrite, Bufs: [][]byte{b}, FUA: true},
			{Op: blockdev.OpWriteZeroes, FUA: true}, {Op: blockdev.OpFlush},
		} {
			r.Length = int64(len(b))
			before := flushes(t, dev)
			if err := c.Do(r); err != nil {
				t.Errorf("mode %d, %s: %v", mode, r.Op, err)
			}
			if n, want := flushes(t, dev)-before, r.FUA || r.Op == blockdev.OpFlush; n > 0 != want {
				t.Errorf("mode %d, %s with FUA %v: %d flushes", mode, r.Op, r.FUA, n)
			}
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBlockDeviceWrittenByOthers: what another program has written to a device, and the system still has in its page
// cache, keeps no range from being zeroed or discarded.
func TestBlockDeviceWrittenByOthers(t *testing.T) {
	dev := loopDevice(t, 4*mib)
	for _, mode := range []blockdev.IOMode{blockdev.IODirect, blockdev.IOBuffered} {
		v, err := blockdev.OpenFile(dev, blockdev.Options{IO: mode})
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.OpenFile(dev, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		c, b := volumetest.NewClient(v), directio.AlignedBlock(4096)
		for _, r := range []blockdev.Request{
			{Op: blockdev.OpWriteZeroes}, {Op: blockdev.OpWriteZeroes, MayUnmap: true}, {Op: blockdev.OpDiscard},
		} {
			if _, err := other.WriteAt(bytes.Repeat([]byte{1}, len(b)), 0); err != nil {
				t.Fatal(err)
			}
			r.Length = int64(len(b))
			if err := errors.Join(c.Do(r), c.Read(b, 0)); err != nil {
				t.Errorf("mode %d, %s, may unmap %v: %v", mode, r.Op, r.MayUnmap, err)
			} else if r.Op == blockdev.OpWriteZeroes && !bytes.Equal(b, make([]byte, len(b))) {
				t.Errorf("mode %d, %s, may unmap %v: it reads as %d…", mode, r.Op, r.MayUnmap, b[0])
			}
		}
		if err := errors.Join(other.Close(), v.Close()); err != nil {
			t.Error(err)
		}
	}
}

func zero(t *testing.T, dev string) {
	v, err := blockdev.OpenFile(dev, blockdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := volumetest.NewClient(v).Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Length: v.Info().Size}); err != nil {
		t.Fatal(err)
	}
}

// TestMountedDevice: a device that the system itself uses isn't exported.
func TestMountedDevice(t *testing.T) {
	dev := loopDevice(t, 32*mib)
	disktest.Mount(t, dev, "mkfs.ext4", "-q")
	mustFail(t, tryOpen(t, dev, blockdev.Options{}), blockdev.ErrBusy, "mounted")
}

// TestBlockDeviceSectors opens a device whose sectors are larger than the blocks asked for. The system zeroes and
// discards whole sectors only.
func TestBlockDeviceSectors(t *testing.T) {
	dev := loopDevice(t, 4*mib, "--sector-size", "4096")
	mustFail(t, tryOpen(t, dev, blockdev.Options{BlockSize: 512, IO: blockdev.IODirect}), blockdev.ErrUnsupported, "4096")
	v, err := blockdev.OpenFile(dev, blockdev.Options{BlockSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if i := v.Info(); !strings.HasPrefix(i.Mode, "buffered") || i.BlockSize != 512 {
		t.Errorf("%+v", i)
	}
	c, ones := volumetest.NewClient(v), bytes.Repeat([]byte{1}, 32<<10)
	if err := c.Write(ones, 0, false); err != nil {
		t.Fatal(err)
	}
	for _, r := range []blockdev.Request{ // of partial sectors, at one end and at both
		{Op: blockdev.OpWriteZeroes, Offset: 512, Length: 1024},
		{Op: blockdev.OpWriteZeroes, Offset: 4096 - 512, Length: 8192, MayUnmap: true},
		{Op: blockdev.OpWriteZeroes, Offset: 16384, Length: 4096 + 512, FUA: true},
		{Op: blockdev.OpDiscard, Offset: 24576 + 512, Length: 4096 - 512},
	} {
		if err := c.Do(r); err != nil {
			t.Errorf("%s of %d bytes at %d: %v", r.Op, r.Length, r.Offset, err)
		}
		if r.Op == blockdev.OpWriteZeroes {
			clear(ones[r.Offset:][:r.Length])
		}
	}
	got := make([]byte, len(ones))
	if err := c.Read(got, 0); err != nil {
		t.Fatal(err)
	}
	clear(got[24576+512:][:4096-512]) // which may be anything
	clear(ones[24576+512:][:4096-512])
	if !bytes.Equal(got, ones) {
		t.Error("other blocks than those that were zeroed are zeroes")
	}
}

// TestBlockDeviceGrows enlarges a device while it is open.
func TestBlockDeviceGrows(t *testing.T) {
	dev := loopDevice(t, 4*mib)
	v, err := blockdev.OpenFile(dev, blockdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	var told []int64
	r := v.(blockdev.Resizer)
	r.OnResize(func(n int64) { told = append(told, n) })
	if err := os.Truncate(backing(t, dev), 6*mib); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("losetup", "--set-capacity", dev).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := r.Refresh(); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(told) != fmt.Sprint([]int64{6 * mib}) {
		t.Errorf("told %v", told)
	}
	if err := volumetest.NewClient(v).Write(make([]byte, 4096), 6*mib-4096, true); err != nil {
		t.Errorf("the last block: %v", err)
	}
}

// TestBlockDeviceBroken makes a part of a device fail with EIO: the rest goes on.
func TestBlockDeviceBroken(t *testing.T) {
	for name, mode := range map[string]blockdev.IOMode{"uring": blockdev.IOUring, "direct": blockdev.IODirect} {
		t.Run(name, func(t *testing.T) {
			dev := loopDevice(t, 4*mib)
			v, err := blockdev.OpenFile(dev, blockdev.Options{IO: mode})
			if err != nil {
				t.Skip(err)
			}
			defer v.Close()
			if err := os.Truncate(backing(t, dev), 2*mib); err != nil {
				t.Fatal(err)
			}
			c, b := volumetest.NewClient(v), make([]byte, 4096)
			err = c.Read(b, 3*mib)
			mustFail(t, err, blockdev.ErrMedium, dev, "read", fmt.Sprint("at byte ", 3*mib))
			if !errors.Is(err, unix.EIO) {
				t.Errorf("%v isn't EIO", err)
			}
			if err := errors.Join(c.Read(b, mib), c.Write(b, mib, true), c.Flush()); err != nil {
				t.Errorf("the rest: %v", err)
			}
		})
	}
}
