package persist

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestNotSeen: a file that the system can't look at for lack of memory isn't taken for a new one, and keeps what it holds.
func TestNotSeen(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	const size = 16 * mib
	data := bytes.Repeat([]byte{7}, int(fileSize(size, 4096, false)))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	failed := sandbox.FailOnce(t, unix.SYS_NEWFSTATAT, unix.ENOMEM)
	v, err := Open(path, blockdev.Options{Size: size})
	if err == nil {
		mustClose(t, v)
	}
	if !failed() || !errors.Is(err, unix.ENOMEM) || !errors.Is(err, blockdev.ErrBusy) {
		t.Errorf("opened: %v; refused: %v", err, failed())
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, data) {
		t.Errorf("what it held is lost: %v, %d bytes", err, len(b))
	}
}

// TestCreateCutShort: a volume whose creation was interrupted by a power failure is created by the next start that asks
// for the same; a file that holds something is left alone, and so is an empty one if nobody asks.
func TestCreateCutShort(t *testing.T) {
	const size = 4 * mib
	for name, left := range map[string]int64{
		"sized for any kind of memory": fileSize(size, 4096, false),
		"sized for a page cache":       fileSize(size, 4096, true),
		"sized in part":                mib,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "v")
			cut := func() {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(path, left); err != nil {
					t.Fatal(err)
				}
			}
			for _, o := range []blockdev.Options{{}, {Size: size, ReadOnly: true}, {Size: size + 1}} {
				cut()
				if v, err := Open(path, o); !errors.Is(err, blockdev.ErrInvalid) {
					t.Errorf("opened with %+v: %v", o, err)
					v.Close()
				}
			}
			cut() // on a tmpfs, reading a hole fills it
			v := mustOpen(t, path, blockdev.Options{Size: size})
			c := volumetest.NewClient(v)
			if v.Info().Size != size {
				t.Errorf("%d bytes", v.Info().Size)
			}
			if err := c.Write(block(1), size-4096, true); err != nil {
				t.Error(err)
			}
			mustClose(t, v)
			v = mustOpen(t, path, blockdev.Options{Size: size})
			got := make([]byte, 4096)
			if err := volumetest.NewClient(v).Read(got, size-4096); err != nil || got[0] != block(1)[0] {
				t.Errorf("read: %v", err)
			}
			mustClose(t, v)
		})
	}
	path := filepath.Join(t.TempDir(), "v")
	b := make([]byte, fileSize(size, 4096, true))
	b[len(b)-1] = 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, blockdev.Options{Size: size}); !errors.Is(err, ErrNoVolume) {
		t.Errorf("a file that holds something: %v", err)
	}
}

// TestCreateKilled: the same if the program was killed, which had reserved the space, had read what was there, and had
// cleared the maps.
func TestCreateKilled(t *testing.T) {
	for name, dir := range map[string]func(*testing.T) string{"tmpfs": shm, "temporary files": (*testing.T).TempDir} {
		t.Run(name, func(t *testing.T) { testCreateKilled(t, dir(t)) })
	}
}

func testCreateKilled(t *testing.T, dir string) {
	const size = 4 * mib
	path := filepath.Join(dir, "v")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, ram := fileSystem(f)
	if err := unix.Fallocate(int(f.Fd()), 0, 0, fileSize(size, 4096, !ram)); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, mib), headSize); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, path, blockdev.Options{Size: size, Preallocate: true}))
}

// TestAnotherSize: a volume that is opened with another size than it has is refused, and left closed as it was.
func TestAnotherSize(t *testing.T) {
	path, _ := filled(t)
	if _, err := Open(path, blockdev.Options{Size: 8 * mib}); !errors.Is(err, blockdev.ErrInvalid) {
		t.Errorf("opened with another size: %v", err)
	}
	if r := mustCheck(t, path, false); r.Open || !r.Clean() {
		t.Errorf("%+v", r)
	}
}

// TestPreallocated: a file whose space is allocated keeps it, including the maps', when it is made a volume and when it
// grows: otherwise a write could fail for lack of space that had been reserved.
func TestPreallocated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	v, err := Open(path, blockdev.Options{Size: 16 * mib, BlockSize: 512, Preallocate: true})
	if errors.Is(err, blockdev.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, v)
	m := v.(*atomicVolume).m
	whole := func(when string) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		if end := int64(v.(*atomicVolume).super.end()); !m.reserved() || st.Size < end {
			t.Errorf("%s it has %d of %d bytes, and needs %d", when, st.Blocks*512, st.Size, end)
		}
	}
	whole("created")
	if err := m.allocate(0, 0, 64*mib); err != nil {
		t.Fatal(err)
	}
	if err := v.(blockdev.Resizer).Refresh(); err != nil || v.Info().Size <= 16*mib {
		t.Fatalf("%d bytes, %v", v.Info().Size, err)
	}
	whole("grown")
}

// TestCreateInEmpty: an existing empty file stays empty if no volume can be made of it.
func TestCreateInEmpty(t *testing.T) {
	dir, _ := disktest.FailingFS(t)
	path, link := filepath.Join(dir, "v"), filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.WriteFile(path, nil, 0o640), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	o := blockdev.Options{Size: 16 * mib, Preallocate: true} // for which there is room, but not for spare blocks
	for _, name := range []string{path, link} {
		if _, err := Open(name, o); !errors.Is(err, blockdev.ErrCapacity) {
			t.Errorf("%s: %v", name, err)
		}
		if st, err := os.Stat(name); err != nil || st.Size() != 0 {
			t.Errorf("%s: the file isn't as it was: %v, %v", name, st, err)
		}
	}
}

// TestCreateUnmappable: a volume that is larger than any mapping leaves no file behind, and an existing empty file
// stays empty.
func TestCreateUnmappable(t *testing.T) {
	for _, mode := range []string{"", modeInPlace} {
		path := filepath.Join(shm(t), "v")
		v, err := Open(path+mode, blockdev.Options{Size: 1 << 60})
		if err == nil {
			v.Close()
			t.Fatalf("%q: mapped", mode)
		}
		if !errors.Is(err, blockdev.ErrCapacity) {
			t.Errorf("%q: %v", mode, err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q: the file is there: %v", mode, err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path+mode, blockdev.Options{Size: 1 << 60}); !errors.Is(err, blockdev.ErrCapacity) {
			t.Errorf("%q: in an empty file: %v", mode, err)
		}
		if st, err := os.Stat(path); err != nil || st.Size() != 0 {
			t.Errorf("%q: the empty file is %v, %v", mode, st, err)
		}
	}
}

// TestCreateUnmappableAtLast: the same if only the file's final size, which is larger than the one it is first mapped
// with, is more than the process may map.
func TestCreateUnmappableAtLast(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	needDisk(t)
	const size = 32 << 30
	defer limitMemory(t, size+size/2)()
	path := filepath.Join(t.TempDir(), "v")
	if _, err := Open(path, blockdev.Options{Size: size}); !errors.Is(err, unix.ENOMEM) || !errors.Is(err, blockdev.ErrCapacity) {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}

// TestCreateWithoutMemory: if a tmpfs has no page left, not even to read a hole, creating a volume fails and leaves no
// file behind; an existing empty file stays empty.
func TestCreateWithoutMemory(t *testing.T) {
	dir := disktest.Tmpfs(t, "64k")
	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, mib), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling it: %v", err)
	}
	path := filepath.Join(dir, "v")
	for _, mode := range []string{"", modeInPlace} {
		create := func() {
			t.Helper()
			v, err := Open(path+mode, blockdev.Options{Size: 8 * mib})
			if err == nil {
				v.Close()
			}
			if !errors.Is(err, blockdev.ErrCapacity) {
				t.Errorf("%q: %v", mode, err)
			}
		}
		create()
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q: the file is there: %v", mode, err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		create()
		if st, err := os.Stat(path); err != nil || st.Size() != 0 {
			t.Errorf("%q: the empty file is %v, %v", mode, st, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCreatedMeanwhile: a volume that another program created, and wrote to, after this one saw that there was none
// isn't created again.
func TestCreatedMeanwhile(t *testing.T) {
	path, o := filepath.Join(shm(t), "v"), blockdev.Options{Size: 4 * mib}
	v := mustOpen(t, path, o)
	mustWrite(t, volumetest.NewClient(v), block(1), 0, true)
	mustClose(t, v)
	again, err := openFound(path, o, true)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	got := make([]byte, 4096)
	if err := volumetest.NewClient(again).Read(got, 0); err != nil || !bytes.Equal(got, block(1)) {
		t.Errorf("what was written is gone, %v", err)
	}
}

// TestCreateTooShort: if a file can't be made as large as it must be, no volume is created, and the file isn't left.
func TestCreateTooShort(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	needDisk(t)
	path := filepath.Join(t.TempDir(), "v")
	failed := sandbox.FailLater(t, unix.SYS_FTRUNCATE, unix.EFBIG, 1) // of the size without the spare blocks of a page cache
	if _, err := Open(path, blockdev.Options{Size: 16 * mib}); !failed() || !errors.Is(err, blockdev.ErrCapacity) {
		t.Errorf("%v; refused: %v", err, failed())
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}

// TestFormatFull: if a sparse file's file system has no space for the superblock, formatting it fails.
func TestFormatFull(t *testing.T) {
	dir := smallFS(t)
	path := filepath.Join(dir, "v")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 16*mib)); err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{8 * mib, 1} { // what doesn't fit leaves some space
		var err error
		for k := 0; err == nil; k++ {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i, k)), make([]byte, size), 0o600)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("filling it: %v", err)
		}
	}
	if err := Format(path, 0); !errors.Is(err, blockdev.ErrCapacity) {
		t.Error(err)
	}
	if Holds(path) {
		t.Error("there is a volume")
	}
}

// TestIdentifier: no two volumes have the same, so that what is left of one isn't taken for entries of another.
func TestIdentifier(t *testing.T) {
	if one, other := newID(), newID(); one == other {
		t.Error("the same twice")
	}
}

// TestFormatNotDurable: creating a volume reports if the system can't make it durable, and until the maps are durable
// nothing says that there is one.
func TestFormatNotDurable(t *testing.T) {
	for _, c := range []struct {
		name   string
		step   string // named by the error
		call   uint32
		before int // how many calls succeed first
		volume bool
	}{
		{"maps", "msync", unix.SYS_MSYNC, 0, false},
		{"holes", "fdatasync", unix.SYS_FDATASYNC, 0, false},
		{"superblock", "msync", unix.SYS_MSYNC, 1, true},
		{"file", "fdatasync", unix.SYS_FDATASYNC, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			path := filepath.Join(t.TempDir(), "v")
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 16*mib)); err != nil {
				t.Fatal(err)
			}
			failed := sandbox.FailLater(t, c.call, unix.EIO, c.before)
			if err := Format(path, 0); !failed() || !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), c.step+": ") {
				t.Errorf("%v; refused: %v", err, failed())
			}
			if Holds(path) != c.volume {
				t.Errorf("there is a volume: %v, want %v", !c.volume, c.volume)
			}
		})
	}
}

// TestLargestSize: a size that no file can have with the spare blocks is refused like one that the file system doesn't
// take.
func TestLargestSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	v, err := Open(path, blockdev.Options{Size: math.MaxInt64 &^ 4095})
	if !errors.Is(err, unix.EFBIG) || !errors.Is(err, blockdev.ErrCapacity) {
		t.Error(v, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
