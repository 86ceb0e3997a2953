package blockdev_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

const mib = 1 << 20

// mustFail checks an error's kind, and that it names the path and what to do.
func mustFail(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want %q", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q doesn't say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than one line", err)
	}
}

func tryOpen(t *testing.T, path string, o blockdev.Options) error {
	t.Helper()
	v, err := blockdev.OpenFile(path, o)
	if err == nil {
		v.Close()
	}
	return err
}

func TestFileOpenErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "v")
	mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrInvalid, path, "give a size")
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: mib, ReadOnly: true}), blockdev.ErrInvalid, "isn't created")
	mustFail(t, tryOpen(t, filepath.Join(dir, "no", "v"), blockdev.Options{Size: mib}), blockdev.ErrInvalid, "directory doesn't exist")
	mustFail(t, tryOpen(t, dir, blockdev.Options{Size: mib}), blockdev.ErrInvalid, "is a directory")
	mustFail(t, tryOpen(t, os.DevNull, blockdev.Options{Size: mib}), blockdev.ErrInvalid, "block device")
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: mib + 512}), blockdev.ErrInvalid, "multiple", "block size of 512")
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: 1 << 60, Preallocate: true}), blockdev.ErrCapacity, path, "1.0 EiB")
	if _, err := os.Stat(path); err == nil {
		t.Fatal("a volume that couldn't be created was left behind")
	}
	if err := tryOpen(t, path, blockdev.Options{Size: mib}); err != nil {
		t.Fatal(err)
	}
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: 2 * mib}), blockdev.ErrInvalid, "1.0 MiB", "2.0 MiB", "remove")
	if err := tryOpen(t, path, blockdev.Options{Size: mib}); err != nil {
		t.Errorf("the size that it has: %v", err)
	}
	if os.Geteuid() != 0 { // root may write anything
		os.Chmod(path, 0o400)
		mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrReadOnly, "read-only")
		os.Chmod(path, 0o600)
	}
	os.WriteFile(path, make([]byte, 5000), 0o600)
	mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrInvalid, "5000", "4096", "8192")
	os.Truncate(path, 0)
	mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrInvalid, "empty")
	if err := tryOpen(t, path, blockdev.Options{Size: mib}); err != nil {
		t.Errorf("an empty file with a size: %v", err)
	}
}

// TestFileNotDurable: a file whose size can't be made durable isn't made, though the system may make no names durable.
func TestFileNotDurable(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	sandbox.Refuse(t, unix.SYS_FSYNC, unix.EINVAL)
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: mib}), blockdev.ErrInvalid, "create", "sync "+path)
	if _, err := os.Stat(path); err == nil {
		t.Error("it is left")
	}
}

// TestFileNameNotDurable: the same where only its name can't be made durable.
func TestFileNameNotDurable(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	failed := sandbox.FailLater(t, unix.SYS_FSYNC, unix.EIO, 1) // of the file
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: mib}), blockdev.ErrMedium, "create", "sync "+filepath.Dir(path))
	if _, err := os.Stat(path); err == nil || !failed() {
		t.Errorf("it is left, or nothing was refused: %v", failed())
	}
}

func TestFileLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	v, err := blockdev.OpenFile(path, blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	holder := "locked by this program, which has another volume there"
	mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrBusy, path, holder)
	mustFail(t, tryOpen(t, path, blockdev.Options{ReadOnly: true}), blockdev.ErrBusy, holder)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	one, err := blockdev.OpenFile(path, blockdev.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if err := tryOpen(t, path, blockdev.Options{ReadOnly: true}); err != nil {
		t.Errorf("two readers: %v", err)
	}
	mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrBusy)
}

// A symbolic link that leads nowhere isn't made a file of: where it leads may be a disk that isn't there yet.
func TestOpenLinkToNothing(t *testing.T) {
	dir := t.TempDir()
	link, to := filepath.Join(dir, "link"), filepath.Join(dir, "gone.img")
	if err := os.Symlink(to, link); err != nil {
		t.Fatal(err)
	}
	for _, o := range []blockdev.Options{{}, {Size: mib}, {ReadOnly: true}} {
		err := tryOpen(t, link, o)
		mustFail(t, err, blockdev.ErrInvalid, link, "symbolic link to "+to)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: %v, want fs.ErrNotExist", o, err)
		}
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("a file was made")
	}
	if err := os.WriteFile(to, make([]byte, mib), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tryOpen(t, link, blockdev.Options{}); err != nil {
		t.Errorf("a link that leads to a file: %v", err)
	}
}

func allocated(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func TestFileSpace(t *testing.T) {
	dir := t.TempDir()
	sparse, full := filepath.Join(dir, "sparse"), filepath.Join(dir, "full")
	v, err := blockdev.OpenFile(sparse, blockdev.Options{Size: 16 * mib})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if n := allocated(t, sparse); n > mib {
		t.Errorf("a sparse file of 16 MiB takes %d bytes", n)
	}
	err = tryOpen(t, full, blockdev.Options{Size: 16 * mib, Preallocate: true})
	if errors.Is(err, blockdev.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if n := allocated(t, full); n < 16*mib {
		t.Errorf("a preallocated file of 16 MiB takes %d bytes", n)
	}
	if !v.Info().Discard {
		t.Skip("the file system punches no holes")
	}
	c := volumetest.NewClient(v)
	if err := c.Write(bytes.Repeat([]byte{1}, mib), 0, true); err != nil {
		t.Fatal(err)
	}
	before := allocated(t, sparse)
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Length: mib}); err != nil {
		t.Fatal(err)
	}
	if after := allocated(t, sparse); after > before-mib/2 {
		t.Errorf("%d bytes before a discard of 1 MiB, %d after", before, after)
	}
}

func TestFileResize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	v, err := blockdev.OpenFile(path, blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	var told []int64
	var last int64
	r := v.(blockdev.Resizer)
	stop := r.OnResize(func(n int64) { told = append(told, n) })
	r.OnResize(func(n int64) { last = n })
	c := volumetest.NewClient(v)
	for _, size := range []int64{mib, 2*mib + 100, 2 * mib, 512 << 10} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if err := r.Refresh(); size%4096 == 0 && err != nil {
			t.Fatal(err)
		} else if size%4096 != 0 { // when it is opened anew it would be refused
			mustFail(t, err, blockdev.ErrInvalid, fmt.Sprint(size), "multiple")
		}
	}
	if fmt.Sprint(told) != fmt.Sprint([]int64{2 * mib, 512 << 10}) || v.Info().Size != 512<<10 {
		t.Errorf("told %v, size %d", told, v.Info().Size)
	}
	mustFail(t, c.Read(make([]byte, 4096), 512<<10), blockdev.ErrRange)
	stop()
	os.Truncate(path, mib)
	if err := r.Refresh(); err != nil || len(told) != 2 || last != mib {
		t.Errorf("%v; who wants to know no more was told %v, who does %d", err, told, last)
	}
	// A file that shrank, and nobody said so: the data isn't there.
	os.Truncate(path, 0)
	mustFail(t, c.Read(make([]byte, 4096), 0), blockdev.ErrMedium)
}

// mountTmpfs gives a file system in memory of the given size.
func mountTmpfs(t *testing.T, size string) string {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mounting a small tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFileInMemory(t *testing.T) {
	dir := "/dev/shm"
	f, err := os.CreateTemp(dir, "volume")
	if err != nil {
		t.Skip(err)
	}
	defer os.Remove(f.Name())
	f.Close()
	v, err := blockdev.OpenFile(f.Name(), blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if m := v.Info().Mode; !strings.HasPrefix(m, "buffered") {
		t.Errorf("mode %q on %s", m, dir)
	}
	other := f.Name() + ".other"
	mustFail(t, tryOpen(t, other, blockdev.Options{Size: mib, IO: blockdev.IODirect}), blockdev.ErrUnsupported, "in memory")
	if os.Remove(other) == nil {
		t.Error("a file was made, and left, that can't be reached as asked")
	}
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(other)
	mustFail(t, tryOpen(t, other, blockdev.Options{Size: mib, IO: blockdev.IODirect}), blockdev.ErrUnsupported, "in memory")
	if st, err := os.Stat(other); err != nil || st.Size() != 0 {
		t.Errorf("a file that was there, empty, is %v, %v", st, err)
	}
	mustFail(t, tryOpen(t, f.Name(), blockdev.Options{IO: blockdev.IODirect}), blockdev.ErrBusy)
}

// TestFileFull fills the file system below: writes fail, and everything else goes on.
func TestFileFull(t *testing.T) {
	t.Run("tmpfs", func(t *testing.T) { testFull(t, mountTmpfs(t, "1m"), blockdev.IOAuto) })
	t.Run("direct", func(t *testing.T) { dir, _ := failingFS(t); testFull(t, dir, blockdev.IODirect) })
	t.Run("uring", func(t *testing.T) { dir, _ := failingFS(t); testFull(t, dir, blockdev.IOUring) })
}

// testFull fills a file system of at most 32 MiB.
func testFull(t *testing.T, dir string, mode blockdev.IOMode) {
	const size = 64 * mib
	v, err := blockdev.OpenFile(filepath.Join(dir, "v"), blockdev.Options{Size: size, IO: mode})
	if err != nil {
		t.Skip(err)
	}
	defer v.Close()
	c, b := volumetest.NewClient(v), bytes.Repeat([]byte{7}, 256<<10)
	for off := int64(0); err == nil && off < size; off += int64(len(b)) {
		err = c.Write(b, off, false)
	}
	mustFail(t, err, blockdev.ErrCapacity, "write", "at byte")
	if err := c.Read(b, 0); err != nil || b[0] != 7 {
		t.Errorf("read after a failed write: %v", err)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Length: mib / 2}); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(b, 0, true); err != nil {
		t.Errorf("write after a discard made room: %v", err)
	}
	mustFail(t, tryOpen(t, filepath.Join(dir, "w"), blockdev.Options{Size: size, Preallocate: true}), blockdev.ErrCapacity)
	empty := filepath.Join(dir, "x")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mustFail(t, tryOpen(t, empty, blockdev.Options{Size: size, Preallocate: true}), blockdev.ErrCapacity)
	if st, err := os.Stat(empty); err != nil || st.Size() != 0 || allocated(t, empty) != 0 {
		t.Errorf("the file was empty, and has %d bytes, and %d reserved, which nobody asked for: %v", st.Size(), allocated(t, empty), err)
	}
}

// loopDevice makes a block device of a file.
func loopDevice(t *testing.T, size int64, args ...string) string {
	backing := filepath.Join(t.TempDir(), "backing")
	if err := os.WriteFile(backing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(backing, size); err != nil {
		t.Fatal(err)
	}
	return loopDeviceOf(t, backing, args...)
}

// loopDeviceOf makes a block device of a file that is there, or of a device.
func loopDeviceOf(t *testing.T, backing string, args ...string) string {
	out, err := exec.Command("losetup", append(args, "--find", "--show", backing)...).CombinedOutput()
	dev := strings.TrimSpace(string(out))
	if err != nil {
		t.Skipf("no loop device to be had: %v %s", err, dev)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", dev).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return dev
}

// TestLoopDeviceFile: a file and the loop device that is made of it are one volume, which several open at once only to
// read.
func TestLoopDeviceFile(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		args := []string{}
		if readOnly {
			args = append(args, "--read-only")
		}
		dev := loopDevice(t, 4*mib, args...)
		b, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/loop/backing_file")
		if err != nil {
			t.Skip(err)
		}
		file := strings.TrimSpace(string(b))
		link := file + ".link"
		if err := os.Link(file, link); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{file, link} {
			mustFail(t, tryOpen(t, name, blockdev.Options{}), blockdev.ErrBusy, name, dev)
			if err := tryOpen(t, name, blockdev.Options{ReadOnly: true}); (err == nil) != readOnly {
				t.Errorf("to read, of a device that is read-only %v: %v", readOnly, err)
			}
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		o := blockdev.Options{ReadOnly: readOnly}
		for how, want := range map[int]bool{unix.LOCK_UN: true, unix.LOCK_SH: readOnly, unix.LOCK_EX: false} {
			if err := unix.Flock(int(f.Fd()), how); err != nil {
				t.Fatal(err)
			}
			if err := tryOpen(t, dev, o); want && err != nil {
				t.Errorf("lock %d of the file, device read-only %v: %v", how, readOnly, err)
			} else if !want {
				mustFail(t, err, blockdev.ErrBusy, dev, file)
			}
		}
	}
}

// TestLoopDeviceOfDevice: a device, a loop device that is made of it and the file below both are one volume.
func TestLoopDeviceOfDevice(t *testing.T) {
	below := loopDevice(t, 4*mib)
	above := loopDeviceOf(t, below)
	node := filepath.Join(t.TempDir(), "node")
	var st unix.Stat_t
	if err := errors.Join(unix.Stat(below, &st), unix.Mknod(node, unix.S_IFBLK|0o600, int(st.Rdev))); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{below, node} {
		mustFail(t, tryOpen(t, name, blockdev.Options{}), blockdev.ErrBusy, name, above)
	}
	f, err := os.Open(backing(t, below))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := tryOpen(t, above, blockdev.Options{}); err != nil {
		t.Errorf("nobody has the file: %v", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	mustFail(t, tryOpen(t, above, blockdev.Options{}), blockdev.ErrBusy, above, f.Name())
}

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

// TestDeviceLookedAt: a device that somebody locks for a moment, as udev does, can be opened; one that stays locked is
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

// flushes is how often the system had a device make durable what it was given.
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

// TestBlockDeviceFlushes: what is to be durable when it completes has a device flush, in any mode; and a write that isn't
// needn't wait for that.
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

// TestMountedDevice: what the system itself uses isn't exported.
func TestMountedDevice(t *testing.T) {
	dir, _ := failingFS(t)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	node, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		t.Skip(err)
	}
	mustFail(t, tryOpen(t, "/dev/"+filepath.Base(node), blockdev.Options{}), blockdev.ErrBusy, "mounted")
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
	for _, r := range []blockdev.Request{ // of parts of sectors, at one end and at both
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

// TestBlockDeviceGrows makes a device larger while it is open.
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

// TestBlockDeviceBroken has a device fail on a part of it, with EIO: the rest goes on.
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

// backing is the file of a loop device.
func backing(t *testing.T, dev string) string {
	t.Helper()
	b, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestKindOf(t *testing.T) {
	for err, want := range map[error]error{
		unix.EIO:                         blockdev.ErrMedium,
		unix.ENOSPC:                      blockdev.ErrCapacity,
		unix.EDQUOT:                      blockdev.ErrCapacity,
		unix.EROFS:                       blockdev.ErrReadOnly,
		unix.ENODEV:                      blockdev.ErrGone,
		unix.ENXIO:                       blockdev.ErrGone,
		unix.ETIMEDOUT:                   blockdev.ErrUnreachable, // the block layer, of a disk that doesn't answer; NFS, mounted soft
		unix.ETIME:                       blockdev.ErrUnreachable, // the block layer, of one that had a limit
		unix.ENOLINK:                     blockdev.ErrUnreachable, // the block layer, of the way to the disk
		unix.EHOSTDOWN:                   blockdev.ErrUnreachable, // CIFS
		unix.EHOSTUNREACH:                blockdev.ErrUnreachable,
		unix.ENETDOWN:                    blockdev.ErrUnreachable,
		unix.ENETUNREACH:                 blockdev.ErrUnreachable,
		unix.ENETRESET:                   blockdev.ErrUnreachable,
		unix.ENOTCONN:                    blockdev.ErrUnreachable, // FUSE, whose program has ended
		unix.ECONNREFUSED:                blockdev.ErrUnreachable,
		unix.ECONNRESET:                  blockdev.ErrUnreachable,
		unix.ECONNABORTED:                blockdev.ErrUnreachable, // FUSE, whose connection was ended; CIFS
		unix.EPIPE:                       blockdev.ErrUnreachable,
		unix.EBUSY:                       blockdev.ErrBusy,
		unix.ENOMEM:                      blockdev.ErrBusy,
		unix.EMFILE:                      blockdev.ErrBusy,
		unix.ENFILE:                      blockdev.ErrBusy,
		unix.ENOLCK:                      blockdev.ErrBusy, // flock(2): no memory for locks
		unix.EOPNOTSUPP:                  blockdev.ErrUnsupported,
		unix.EINVAL:                      blockdev.ErrInvalid,
		unix.ENODATA:                     blockdev.ErrMedium,
		os.ErrClosed:                     blockdev.ErrMedium,
		fmt.Errorf("x: %w", unix.ENOSPC): blockdev.ErrCapacity,
	} {
		if got := blockdev.KindOf(err); !errors.Is(got, want) {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
	err := error(&blockdev.OpError{Op: "write", Path: "v", Offset: 512, Kind: blockdev.ErrMedium, Err: unix.EIO})
	if !errors.Is(err, unix.EIO) || !errors.Is(err, blockdev.ErrMedium) || errors.Is(err, blockdev.ErrGone) {
		t.Errorf("%v is the wrong things", err)
	}
}
