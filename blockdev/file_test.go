package blockdev_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
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

func TestFileLock(t *testing.T) {
	t.Run("here", func(t *testing.T) { testFileLock(t, t.TempDir()) })
	t.Run("Btrfs", func(t *testing.T) { dir, _, _ := freezingFS(t, "btrfs"); testFileLock(t, dir) }) // stat's device is the subvolume's
}

func testFileLock(t *testing.T, dir string) {
	path := filepath.Join(dir, "v")
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
	defer v.Close() // if it isn't reached below
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
		} else if size%4096 != 0 { // it would be refused when reopened
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
	// A file that shrank without anybody saying so: the data isn't there.
	os.Truncate(path, 0)
	mustFail(t, c.Read(make([]byte, 4096), 0), blockdev.ErrMedium)
	// One problem doesn't hide the other.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	mustFail(t, r.Refresh(), blockdev.ErrInvalid, "at least one block", "was removed")
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	mustFail(t, r.Refresh(), blockdev.ErrGone)
}

// A file that was removed, or whose name another file has now, is used as before, but Refresh says so; not of one that
// was renamed.
func TestFileLosesItsName(t *testing.T) {
	for what, change := range map[string]func(path string) error{
		"removed":  os.Remove,
		"replaced": func(path string) error { return os.Rename(other(t, path), path) },
		"moved": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.Rename(other(t, path), path))
		},
		"": func(path string) error { return os.Rename(path, path+".old") },
	} {
		path := filepath.Join(t.TempDir(), "v")
		v, err := blockdev.OpenFile(path, blockdev.Options{Size: mib})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		r := v.(blockdev.Resizer)
		if err := r.Refresh(); err != nil {
			t.Fatal(err)
		}
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		if err := r.Refresh(); what == "" && err != nil {
			t.Error(err)
		} else if what != "" {
			mustFail(t, err, blockdev.ErrInvalid, path, what)
		}
		if err := volumetest.NewClient(v).Write(make([]byte, 4096), 0, true); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A file that never had a name hasn't lost it.
func TestFileWithoutName(t *testing.T) {
	fd, err := unix.MemfdCreate("volume", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	v, err := blockdev.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := v.(blockdev.Resizer).Refresh(); err != nil {
		t.Error(err)
	}
}

// other makes a file beside path.
func other(t *testing.T, path string) string {
	t.Helper()
	if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path + ".new"
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

// TestFileFull fills the file system below: writes fail, and everything else continues.
func TestFileFull(t *testing.T) {
	t.Run("tmpfs", func(t *testing.T) { testFull(t, disktest.Tmpfs(t, "1m"), blockdev.IOAuto) })
	t.Run("direct", func(t *testing.T) { dir, _ := disktest.FailingFS(t); testFull(t, dir, blockdev.IODirect) })
	t.Run("uring", func(t *testing.T) { dir, _ := disktest.FailingFS(t); testFull(t, dir, blockdev.IOUring) })
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

// TestFileCut: a read of what somebody has cut off the file is an error, in whichever way it is made.
func TestFileCut(t *testing.T) {
	for name, mode := range map[string]blockdev.IOMode{
		"uring": blockdev.IOUring, "direct": blockdev.IODirect, "buffered": blockdev.IOBuffered,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "v")
			v, err := blockdev.OpenFile(path, blockdev.Options{Size: mib, IO: mode})
			if err != nil {
				t.Skip(err)
			}
			defer v.Close()
			c, b := volumetest.NewClient(v), make([]byte, 8192)
			if err := errors.Join(c.Write(b, 0, false), os.Truncate(path, 8192)); err != nil {
				t.Fatal(err)
			}
			for off, size := range map[int64]int{4096: 8192, 8192: 4096, 64 << 10: 4096} {
				mustFail(t, c.Read(b[:size], off), blockdev.ErrMedium, "read", "EOF")
			}
			if err := c.Read(b, 0); err != nil {
				t.Errorf("of what is left: %v", err)
			}
		})
	}
}
