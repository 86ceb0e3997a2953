package persist

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(victimPath); path != "" {
		victim(path)
		return
	}
	goleak.VerifyTestMain(m)
}

const mib = 1 << 20

type openFunc = func(string, blockdev.Options) (blockdev.Volume, error)

// suite runs the acceptance suite on files in dir.
func suite(t *testing.T, dir func(*testing.T) string, open openFunc) {
	volumetest.Run(t, volumetest.Config{
		New: func(t *testing.T) func(blockdev.Options) (blockdev.Volume, error) {
			path := filepath.Join(dir(t), "volume")
			return func(o blockdev.Options) (blockdev.Volume, error) { return open(path, o) }
		},
	})
}

// inPlace opens a volume whose blocks are overwritten.
func inPlace(path string, o blockdev.Options) (blockdev.Volume, error) {
	return Open(path+modeInPlace, o)
}

func TestMappedFile(t *testing.T) { suite(t, (*testing.T).TempDir, inPlace) }

// shm returns a directory on a tmpfs.
func shm(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "persist") //nolint:usetesting // t.TempDir may not be on a tmpfs
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestTmpfs(t *testing.T) {
	suite(t, shm, inPlace)
	v, err := inPlace(filepath.Join(shm(t), "v"), blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if i := v.Info(); !strings.Contains(i.Mode, "nothing survives") || i.VolatileCache {
		t.Errorf("%+v", i)
	}
}

// huge returns a directory on a hugetlbfs that has as much memory as a test needs.
func huge(t *testing.T) string {
	const need, page = 64 * mib, 2 * mib
	dir := disktest.HugePages(t)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if free := freeHugePages(t); st.Bsize != page || free*page < need {
		t.Skipf("%d huge pages of %d bytes are free: sysctl vm.nr_hugepages=%d makes enough", free, st.Bsize, need/page)
	}
	return dir
}

// freeHugePages returns how many there are that no mapping has or has reserved.
func freeHugePages(t *testing.T) (n int64) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		sign int64
	}{{"Free", 1}, {"Rsvd", -1}} {
		_, rest, found := strings.Cut(string(info), "HugePages_"+c.name+":")
		value := int64(0)
		if _, err := fmt.Sscan(rest, &value); err != nil || !found {
			t.Skipf("/proc/meminfo has no HugePages_%s", c.name)
		}
		n += c.sign * value
	}
	return n
}

// TestHugePages: what lies in huge pages doesn't survive the machine, either, and their file has no holes.
func TestHugePages(t *testing.T) {
	v, err := inPlace(filepath.Join(huge(t), "v"), blockdev.Options{Size: 4 * mib})
	if err != nil {
		t.Fatal(err)
	}
	if i := v.Info(); !strings.Contains(i.Mode, hugetlbfs) || !strings.Contains(i.Mode, "nothing survives") || i.VolatileCache || i.Discard {
		t.Errorf("%+v", i)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	suite(t, huge, inPlace)
}

// TestHugePagesFormatted: a file of huge pages that exists can be a volume that writes out of place. Whatever it held
// is gone.
func TestHugePagesFormatted(t *testing.T) {
	path := filepath.Join(huge(t), "v")
	v, err := inPlace(path, blockdev.Options{Size: 32 * mib})
	if err != nil {
		t.Fatal(err)
	}
	full := bytes.Repeat([]byte{0xff}, mib)
	c := volumetest.NewClient(v)
	for off := int64(0); off < v.Info().Size; off += mib {
		if err := c.Write(full, off, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(v.Close(), Format(path, 0)); err != nil {
		t.Fatal(err)
	}
	if v, err = Open(path, blockdev.Options{}); err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	c = volumetest.NewClient(v)
	got := make([]byte, v.Info().Size)
	if err := c.Read(got, 0); err != nil || len(bytes.TrimLeft(got, "\x00")) > 0 {
		t.Errorf("it isn't empty: %v", err)
	}
	if err := c.Write(full, mib, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(got[:mib], mib); err != nil || !bytes.Equal(got[:mib], full) {
		t.Errorf("what was written isn't read: %v", err)
	}
}

// openDAX opens a file as if it were on a DAX file system.
func openDAX(path string, o blockdev.Options, lines *lineFlusher) (*volume, error) {
	v, err := inPlace(path, o)
	if err != nil {
		return nil, err
	}
	p := v.(*volume)
	p.m.dax = true
	return newVolume(p.m, path, p.info.BlockSize, o.ReadOnly, lines), nil
}

// TestLines runs the suite with the processor's own instruction.
func TestLines(t *testing.T) {
	lines := flusher()
	if lines == nil {
		t.Skip("the processor has no instruction to write a line back")
	}
	suite(t, (*testing.T).TempDir, func(path string, o blockdev.Options) (blockdev.Volume, error) {
		v, err := openDAX(path, o, lines)
		if err != nil {
			return nil, err
		}
		return v, nil
	})
}

// TestDurableHoles: if a completed write is durable, so is a completed discard: old data doesn't come back after a
// power failure.
func TestDurableHoles(t *testing.T) {
	var l flushed
	v, err := openDAX(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: 4 * mib}, l.flusher())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if !v.info.Discard {
		t.Skip("no holes here")
	}
	synced := 0
	v.syncFile = func() error {
		synced++
		return nil
	}
	c := volumetest.NewClient(v)
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Offset: mib, Length: mib}); err != nil || synced != 1 {
		t.Errorf("discard: %v, made durable %d times", err, synced)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: 2 * mib, Length: mib, MayUnmap: true}); err != nil || synced != 2 {
		t.Errorf("write zeroes: %v, made durable %d times", err, synced-1)
	}
	v.syncFile = func() error { return unix.EIO }
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Length: mib}); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("discard that isn't durable: %v", err)
	}
}

// TestDurableLines checks that a write's lines, and no others, are flushed and fenced when it completes.
func TestDurableLines(t *testing.T) {
	var l flushed
	v, err := openDAX(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: 4 * mib, BlockSize: 512}, l.flusher())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	l.base = uintptr(unsafe.Pointer(unsafe.SliceData(v.m.mem)))
	if i := v.Info(); i.VolatileCache || !strings.Contains(i.Mode, "recorded") || !strings.Contains(i.Mode, "a completed write is durable") {
		t.Errorf("%+v", i)
	}
	c := volumetest.NewClient(v)
	data := bytes.Repeat([]byte{3}, 300<<10)
	for _, x := range []struct{ off, n int64 }{{0, 512}, {512, 4096}, {64<<10 - 512, 1024}, {128 << 10, 300 << 10}, {4*mib - 512, 512}} {
		for _, fua := range []bool{false, true} {
			mustWrite(t, c, data[:x.n], x.off, fua)
			l.expect(t, "write", x.off, x.n)
		}
		if err := c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, MayUnmap: true, Offset: x.off, Length: x.n}); err != nil {
			t.Fatal(err)
		}
		l.expect(t, "write zeroes", x.off, x.n)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(data[:512], 0); err != nil {
		t.Fatal(err)
	}
	l.expect(t, "flush and read", 0, 0)

	// A write that waits for a view is durable when it completes, too.
	_, tok, err := v.View(nil, 0, 512)
	if err != nil {
		t.Fatal(err)
	}
	done := false
	v.Submit(&blockdev.Request{Op: blockdev.OpWrite, Length: 1024, Bufs: [][]byte{data[:1024]},
		Complete: func(*blockdev.Request) { done = true; l.expect(t, "write after a view", 0, 1024) }})
	if done {
		t.Error("a write passed a view")
	}
	v.Release(tok)
	if !done {
		t.Error("the write isn't done")
	}
	// Ranges that the file system unmaps have no lines of ours.
	if err := c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, MayUnmap: true, Offset: mib, Length: 2 * mib}); err != nil {
		t.Fatal(err)
	}
	if v.info.Discard {
		l.expect(t, "unmapped zeroes", 0, 0)
	}
}

func TestModes(t *testing.T) {
	v, err := inPlace(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	i := v.Info()
	t.Log(i.Mode)
	switch p := v.(*volume); {
	case p.lines != nil:
		if i.VolatileCache {
			t.Errorf("%+v", i)
		}
	case !p.m.ram:
		if !i.VolatileCache || !strings.Contains(i.Mode, "msync") {
			t.Errorf("%+v", i)
		}
	}
	if got := describe(&mapping{dax: true, fs: "ext4"}, nil); got != "DAX on ext4, msync: durable after Flush or FUA, in place" {
		t.Errorf("%q", got)
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := blockdev.Open("pmem:", blockdev.Options{Size: mib}, Kind()); !errors.Is(err, blockdev.ErrInvalid) {
		t.Errorf("no path: %v", err)
	}
	path := filepath.Join(t.TempDir(), "v")
	v, err := blockdev.Open("pmem:"+path, blockdev.Options{Size: mib}, Kind())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if _, err := Open(path, blockdev.Options{}); !errors.Is(err, blockdev.ErrBusy) {
		t.Errorf("opened twice: %v", err)
	}
	if _, err := blockdev.OpenFile(path, blockdev.Options{}); !errors.Is(err, blockdev.ErrBusy) {
		t.Errorf("opened as a file, too: %v", err)
	}
	if _, err := Open(path+"2", blockdev.Options{}); !errors.Is(err, blockdev.ErrInvalid) {
		t.Errorf("a file that isn't there: %v", err)
	}
}

// TestCut truncates the file under the mapping: requests fail, and nothing else does.
func TestCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	v, err := inPlace(path, blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	c, b := volumetest.NewClient(v), bytes.Repeat([]byte{9}, 4096)
	mustWrite(t, c, b, 0, true)
	if err := os.Truncate(path, 64<<10); err != nil {
		t.Fatal(err)
	}
	m := v.(blockdev.Memory)
	for _, err := range []error{
		c.Read(b, 128<<10),
		c.Write(b, 128<<10, false),
		c.Write(bytes.Repeat(b, 32), 0, true), // half of it
		c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: mib - 4096, Length: 4096}),
		func() error { _, _, err := m.View(nil, 60<<10, 8<<10); return err }(),
	} {
		if !errors.Is(err, blockdev.ErrMedium) {
			t.Errorf("got %v", err)
		}
	}
	if err := c.Read(b, 0); err != nil || b[0] != 9 {
		t.Errorf("what is left: %v", err)
	}
	v.Close()
}

// TestCutLines is TestCut for stores that bypass the caches, and for flushed lines.
func TestCutLines(t *testing.T) {
	lines := flusher()
	if lines == nil {
		t.Skip("the processor has no instruction to write a line back")
	}
	path := filepath.Join(t.TempDir(), "v")
	v, err := openDAX(path, blockdev.Options{Size: mib, BlockSize: 512}, lines)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := os.Truncate(path, 64<<10); err != nil {
		t.Fatal(err)
	}
	c := volumetest.NewClient(v)
	for _, n := range []int{512, 4096, 128 << 10} {
		if err := c.Write(make([]byte, n), 128<<10, false); !errors.Is(err, blockdev.ErrMedium) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestTouch: whichever page of a range is missing, wherever in a page the range begins, that is found before the range is
// lent or shown.
func TestTouch(t *testing.T) {
	page := os.Getpagesize()
	m := &mapping{mem: mapped(t, 16*page)}
	for at := 0; at < len(m.mem); at += page {
		one := m.mem[at : at+page]
		if err := unix.Mprotect(one, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		for _, from := range []int{0, 512, page - 512} {
			if err := m.touch(int64(from), int64(len(m.mem)-512-from)); !errors.Is(err, errFault) {
				t.Errorf("page %d is missing, from byte %d on: %v", at/page, from, err)
			}
		}
		if err := m.touch(0, int64(at)); err != nil {
			t.Errorf("the pages before page %d: %v", at/page, err)
		}
		if err := unix.Mprotect(one, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOtherPanics checks that panics from elsewhere than the mapping continue.
func TestOtherPanics(t *testing.T) {
	m := &mapping{mem: mapped(t, 4096)}
	bad := mapped(t, 4096)
	unix.Mprotect(bad, unix.PROT_NONE)
	defer func() {
		if recover() == nil {
			t.Error("a fault in a buffer was taken for the mapping's")
		}
	}()
	m.give(&blockdev.Request{Bufs: [][]byte{bad}}, m.mem[:512], 0)
}

// TestRequestUsedAgain: what making one write durable left in a request doesn't keep it from zeroing a long range.
func TestRequestUsedAgain(t *testing.T) {
	const size = longRange * 512
	for name, open := range map[string]openFunc{"out of place": Open, "in place": inPlace} {
		v, err := open(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: size, BlockSize: 512})
		if err != nil {
			t.Fatal(err)
		}
		done, got := make(chan error, 1), make([]byte, 4096)
		r := &blockdev.Request{
			Op: blockdev.OpWrite, FUA: true, Length: 4096, Bufs: [][]byte{block(1)},
			Complete: func(r *blockdev.Request) { done <- r.Err },
		}
		v.Submit(r)
		err = <-done
		r.Op, r.FUA, r.Length, r.Bufs = blockdev.OpWriteZeroes, false, size, nil
		v.Submit(r)
		if err := errors.Join(err, <-done, volumetest.NewClient(v).Read(got, 0)); err != nil || !bytes.Equal(got, make([]byte, 4096)) {
			t.Errorf("%s: %v, %d…", name, err, got[0])
		}
		mustClose(t, v)
	}
}

// TestDiscardInPlace: a discard gives space back to the file system, and a read-only volume doesn't offer it.
func TestDiscardInPlace(t *testing.T) {
	path := filepath.Join(shm(t), "v")
	v, err := inPlace(path, blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	if i := v.Info(); !i.Discard || !i.ZeroAfterDiscard {
		t.Errorf("it has discard: %v, which zeroes: %v", i.Discard, i.ZeroAfterDiscard)
	}
	c := volumetest.NewClient(v)
	if err := errors.Join(c.Write(block(1), 0, false), c.Do(blockdev.Request{Op: blockdev.OpDiscard, Length: mib})); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Blocks != 0 {
		t.Errorf("the file has %d sectors, %v", st.Blocks, err)
	}
	mustClose(t, v)
	if v, err = inPlace(path, blockdev.Options{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	if i := v.Info(); i.Discard || i.ZeroAfterDiscard {
		t.Errorf("read-only, it has discard: %v, which zeroes: %v", i.Discard, i.ZeroAfterDiscard)
	}
	mustClose(t, v)
}

// TestFlushInPlace: in a page cache a flush syncs the whole mapping, and reports if that fails.
func TestFlushInPlace(t *testing.T) {
	opened, err := inPlace(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	v := opened.(*volume)
	defer v.Close()
	if !v.info.VolatileCache {
		t.Skip("no page cache here")
	}
	synced, refusal := 0, error(nil)
	v.sync = func(b []byte) error { synced += len(b); return refusal }
	c := volumetest.NewClient(v)
	if err := c.Flush(); err != nil || synced != mib {
		t.Errorf("%d bytes synced, %v", synced, err)
	}
	refusal = unix.EIO
	if err := c.Flush(); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("a sync that failed: %v", err)
	}
}

// TestCloseNotDurable: closing a volume in place reports if the system can't make it durable.
func TestCloseNotDurable(t *testing.T) {
	opened, err := inPlace(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	v := opened.(*volume)
	v.sync = func([]byte) error { return unix.EIO }
	if err := v.Close(); !errors.Is(err, blockdev.ErrMedium) {
		t.Error(err)
	}
}

// TestFull fills the file system below a sparse mapping.
func TestFull(t *testing.T) {
	dir := disktest.Tmpfs(t, "1m")
	v, err := inPlace(filepath.Join(dir, "v"), blockdev.Options{Size: 8 * mib})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	c, b := volumetest.NewClient(v), bytes.Repeat([]byte{7}, 256<<10)
	for off := int64(0); err == nil && off < 8*mib; off += int64(len(b)) {
		err = c.Write(b, off, false)
	}
	if !errors.Is(err, blockdev.ErrCapacity) {
		t.Fatalf("got %v", err)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Length: 512 << 10}); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(b, 0, true); err != nil {
		t.Errorf("after a discard made room: %v", err)
	}
}

// TestFullXFS: a file system may refuse a page before it has no block left.
func TestFullXFS(t *testing.T) {
	const size = 320 * mib // about the least that it takes
	for name, open := range map[string]openFunc{"out of place": Open, "in place": inPlace} {
		t.Run(name, func(t *testing.T) {
			dir := disktest.Mount(t, disktest.Image(t, size), "mkfs.xfs", "-q")
			v, err := open(filepath.Join(dir, "v"), blockdev.Options{Size: size})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			c, b := volumetest.NewClient(v), bytes.Repeat([]byte{7}, 4096)
			for off := int64(0); err == nil && off < size; off += int64(len(b)) {
				err = c.Write(b, off, false)
			}
			if !errors.Is(err, blockdev.ErrCapacity) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestLostOnFull: unreadable data is a medium error even if the file system is full: that is no reason for a read to
// fail.
func TestLostOnFull(t *testing.T) {
	for name, open := range map[string]openFunc{"out of place": Open, "in place": inPlace} {
		t.Run(name, func(t *testing.T) {
			dir := smallFS(t)
			path := filepath.Join(dir, "v")
			v, err := open(path, blockdev.Options{Size: mib})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			c, b := volumetest.NewClient(v), bytes.Repeat([]byte{7}, 4096)
			mustWrite(t, c, b, 0, true)
			data := uint64(0)
			if a, ok := v.(*atomicVolume); ok {
				data = a.super.extents[0].dataOff
			}
			if err := os.Truncate(path, int64(data)); err != nil {
				t.Fatal(err)
			}
			fillUp(t, dir)
			if err := c.Read(b, 0); !errors.Is(err, blockdev.ErrMedium) {
				t.Errorf("read: %v", err)
			}
			if _, _, err := v.(blockdev.Memory).View(nil, 0, 4096); !errors.Is(err, blockdev.ErrMedium) {
				t.Errorf("view: %v", err)
			}
		})
	}
}

// fillUp leaves no space in a file system.
func fillUp(t *testing.T, dir string) {
	f, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, n := range []int{64 << 10, 1 << 10} {
		if err := f.Sync(); err != nil { // space truncated from another file is free then
			t.Fatal(err)
		}
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, n))
		}
	}
	var fs unix.Statfs_t
	if e := unix.Statfs(dir, &fs); e != nil || fs.Bavail > 0 {
		t.Fatalf("%d blocks are left, %v, %v", fs.Bavail, e, err)
	}
}
