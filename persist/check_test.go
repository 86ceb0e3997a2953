package persist

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// filled makes a volume of 4 MiB whose block i holds the byte i+1, in blocks 0 to 7.
func filled(t *testing.T) (path string, s *superblock) {
	t.Helper()
	return filledIn(t, t.TempDir())
}

// filledIn makes the same in a directory.
func filledIn(t *testing.T, dir string) (path string, s *superblock) {
	t.Helper()
	path = filepath.Join(dir, "v")
	v := mustOpen(t, path, blockdev.Options{Size: 4 * mib})
	c := volumetest.NewClient(v)
	for i := range 8 {
		mustWrite(t, c, block(i+1), int64(i)*4096, false)
	}
	sb := v.super
	mustClose(t, v)
	return path, &sb
}

// disk makes a directory that isn't on a tmpfs.
func disk(t *testing.T) string {
	t.Helper()
	needDisk(t)
	return t.TempDir()
}

// needDisk skips a test of something that a volume on a tmpfs doesn't have.
func needDisk(t *testing.T) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, ram := fileSystem(f); ram {
		t.Skip("temporary files are on a tmpfs")
	}
}

func block(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 4096) }

func mustOpen(t *testing.T, path string, o blockdev.Options) *atomicVolume {
	t.Helper()
	v, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*atomicVolume)
}

func mustClose(t *testing.T, v blockdev.Volume) {
	t.Helper()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustWrite(t *testing.T, c *volumetest.Client, p []byte, off int64, fua bool) {
	t.Helper()
	if err := c.Write(p, off, fua); err != nil {
		t.Fatal(err)
	}
}

func mustCheck(t *testing.T, path string, repair bool) *Report {
	t.Helper()
	r, err := Check(path, repair)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// patch changes bytes of a file.
func patch(t *testing.T, path string, off int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
}

func TestCheckClean(t *testing.T) {
	path, _ := filled(t)
	r := mustCheck(t, path, false)
	if !r.Clean() || r.Open || r.Used != 8 || r.Size != 4*mib || r.Extents != 1 || r.Version != 1 {
		t.Errorf("%+v", r)
	}
	if r.Spare <= 0 || r.Overhead <= 0 || r.Size+r.Spare+r.Overhead != r.FileSize {
		t.Errorf("%d bytes, %d spare, and %d of overhead aren't the file's %d", r.Size, r.Spare, r.Overhead, r.FileSize)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if r = mustCheck(t, path, true); !r.Clean() || r.Repaired {
		t.Errorf("repair of what is whole: %+v", r)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("repair of what is whole changed it: %v", err)
	}
	v := mustOpen(t, path, blockdev.Options{})
	if _, err := Check(path, false); !errors.Is(err, blockdev.ErrBusy) {
		t.Errorf("of a volume in use: %v", err)
	}
	mustClose(t, v)
	for size, says := range map[int]string{
		mib: "nvmetgt pmem format", mib + 1: "can't be made one: size of 1048577 bytes", 512: "nvmetgt pmem format",
	} {
		raw := filepath.Join(t.TempDir(), "raw")
		if err := os.WriteFile(raw, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{second(Check(raw, false)), second(Open(raw, blockdev.Options{}))} {
			if !errors.Is(err, ErrNoVolume) || !errors.Is(err, blockdev.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("of a file of %d bytes that holds none: %v", size, err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestRepairEntry damages an entry: the volume isn't opened, and after a repair the block can't be read until it is
// written, while all others are unchanged.
func TestRepairEntry(t *testing.T) {
	for _, x := range []struct {
		name  string
		entry func(s *superblock, table []byte) uint64
		lost  int
	}{
		{"check", func(*superblock, []byte) uint64 { return 0x1234<<entryBits | 20 }, 1},
		// Whose it may have been says nothing of block 5, which has it by an entry that is right.
		{"check, with the block of another", func(s *superblock, table []byte) uint64 {
			return s.sealed(2, binary.LittleEndian.Uint64(table[5*entrySize:])&entryMask) ^ 1<<entryBits
		}, 1},
		{"no block", func(s *superblock, _ []byte) uint64 { return s.sealed(2, 1) }, 1},
		{"behind the last block", func(s *superblock, _ []byte) uint64 {
			return s.sealed(2, s.extents[0].dataOff/4096+s.extents[0].dataBlocks)
		}, 1},
		// As if a repair had been cut short; all entries that were never written are 0.
		{"disputed 0", func(s *superblock, _ []byte) uint64 { return ^entryCheck(s.salt(), 2, 0) << entryBits }, 1},
		{"shared", func(s *superblock, table []byte) uint64 { // with block 5, by an entry that is right by itself
			return s.sealed(2, binary.LittleEndian.Uint64(table[5*entrySize:])&entryMask)
		}, 2},
		// As if a repair had been cut short when only one of two was durably marked.
		{"disputed and shared", func(s *superblock, table []byte) uint64 {
			p := binary.LittleEndian.Uint64(table[5*entrySize:]) & entryMask
			return p | ^entryCheck(s.salt(), 2, p)<<entryBits
		}, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			path, s := filled(t)
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			table := int64(s.extents[0].tableOff)
			e, at, lost := x.entry(s, file[table:]), table+2*entrySize, x.lost
			patch(t, path, at, binary.LittleEndian.AppendUint64(nil, e))
			// The report names each block that a repair gives up.
			if r := mustCheck(t, path, false); r.Clean() || len(r.Damage) != lost || r.Used != 8-lost || r.Repaired {
				t.Errorf("check: %+v", r)
			}
			if _, err := Open(path, blockdev.Options{}); !errors.Is(err, blockdev.ErrMedium) || !strings.Contains(err.Error(), "pmem check") {
				t.Errorf("opened: %v", err)
			}
			if r := mustCheck(t, path, true); !r.Repaired {
				t.Errorf("repair: %+v", r)
			}
			if r := mustCheck(t, path, false); len(r.Damage) != 0 || r.Lost != lost {
				t.Errorf("after the repair: %+v", r)
			}
			v := mustOpen(t, path, blockdev.Options{})
			defer v.Close()
			c, b := volumetest.NewClient(v), make([]byte, 4096)
			for i := range 8 {
				err := c.Read(b, int64(i)*4096)
				if gone := i == 2 || i == 5 && lost == 2; gone != errors.Is(err, blockdev.ErrMedium) || !gone && b[0] != byte(i+1) {
					t.Errorf("block %d: %d, %v", i, b[0], err)
				}
			}
			if _, _, err := v.View(nil, 0, 8*4096); !errors.Is(err, blockdev.ErrMedium) {
				t.Errorf("a view of a lost block: %v", err)
			}
			mustWrite(t, c, block(99), 2*4096, true)
			if err := c.Read(b, 2*4096); err != nil || b[0] != 99 {
				t.Errorf("written again: %d, %v", b[0], err)
			}
		})
	}
}

// sealed returns an entry with its check.
func (s *superblock) sealed(lba, p uint64) uint64 { return p | entryCheck(s.salt(), lba, p)<<entryBits }

// TestRepairSuper damages either copy of the superblock, or both.
func TestRepairSuper(t *testing.T) {
	change := func(path string, at int64) { patch(t, path, at+200, []byte{0xff}) }
	wipe := func(path string, at int64) { patch(t, path, at, make([]byte, superSize)) }
	t.Run("changed on disk", func(t *testing.T) { testRepairSuper(t, disk, change, errSum) })
	t.Run("wiped on disk", func(t *testing.T) { testRepairSuper(t, disk, wipe, ErrNoVolume) })
	// Without a session the other copy isn't written.
	t.Run("changed on tmpfs", func(t *testing.T) { testRepairSuper(t, shm, change, errSum) })
}

// testRepairSuper damages a copy at a byte of the file; both is what is said of a file with two such copies.
func testRepairSuper(t *testing.T, dir func(*testing.T) string, damage func(path string, at int64), both error) {
	for _, copies := range [][]int64{{0}, {1}, {0, 1}} {
		path, _ := filledIn(t, dir(t))
		for _, i := range copies {
			damage(path, i*superSize)
		}
		if len(copies) == 2 {
			if _, err := Check(path, true); !errors.Is(err, both) {
				t.Errorf("both: %v", err)
			}
			continue
		}
		if r := mustCheck(t, path, false); len(r.Supers) != 1 {
			t.Errorf("copy %d: %+v", copies[0], r)
		}
		if r := mustCheck(t, path, true); !r.Repaired {
			t.Errorf("copy %d: %+v", copies[0], r)
		}
		if r := mustCheck(t, path, false); !r.Clean() || r.Used != 8 {
			t.Errorf("copy %d, repaired: %+v", copies[0], r)
		}
	}
}

// lengthen makes a file longer.
func lengthen(t *testing.T, path string, by int64) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, st.Size()+by); err != nil {
		t.Fatal(err)
	}
}

// viewed returns what a view shows.
func viewed(t *testing.T, v *atomicVolume, off, n int64) (shown []byte) {
	t.Helper()
	segs, tok, err := v.View(nil, off, n)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release(tok)
	for _, s := range segs {
		shown = append(shown, s.Bytes...)
	}
	return shown
}

// TestGrow enlarges the file, both while it is in use and while it isn't.
func TestGrow(t *testing.T) {
	path, _ := filled(t)
	v := mustOpen(t, path, blockdev.Options{})
	var told int64
	v.OnResize(func(n int64) { told = n })
	if err := v.Refresh(); err != nil || told != 0 {
		t.Errorf("nothing has changed: %d, %v", told, err)
	}
	lengthen(t, path, 8*mib)
	if err := v.Refresh(); err != nil {
		t.Fatal(err)
	}
	now := v.Info().Size
	if told != now || now < 7*mib {
		t.Fatalf("%d bytes, told %d", now, told)
	}
	c := volumetest.NewClient(v)
	all := make([]byte, now)
	for i := range all {
		all[i] = byte(i / 4096 * 7)
	}
	mustWrite(t, c, all, 0, false)
	if err := c.Write(all, 0, true); err != nil { // again, over both extents
		t.Fatal(err)
	}
	if !bytes.Equal(viewed(t, v, 4*mib-8192, 16384), all[4*mib-8192:][:16384]) {
		t.Error("a view over both extents shows something else")
	}
	mustClose(t, v)
	growClosed(t, path, all)
}

// TestGrowReadOnly: a volume that is read-only doesn't grow, and one that is closed says so.
func TestGrowReadOnly(t *testing.T) {
	path, _ := filled(t)
	v := mustOpen(t, path, blockdev.Options{ReadOnly: true})
	lengthen(t, path, 8*mib)
	if err := v.Refresh(); err != nil || v.Info().Size != 4*mib {
		t.Errorf("%d bytes, %v", v.Info().Size, err)
	}
	mustClose(t, v)
	if err := v.Refresh(); !errors.Is(err, blockdev.ErrGone) {
		t.Errorf("closed: %v", err)
	}
}

// TestLosesItsName: a file that was removed is used as before, and grows unless it is read-only, but Refresh says so.
func TestLosesItsName(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		path, _ := filled(t)
		v := mustOpen(t, path, blockdev.Options{ReadOnly: readOnly})
		lengthen(t, path, 8*mib)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := v.Refresh(); !errors.Is(err, blockdev.ErrInvalid) || !strings.Contains(err.Error(), "removed") {
			t.Errorf("read-only %v: %v", readOnly, err)
		}
		if now := v.Info().Size; (now >= 7*mib) == readOnly {
			t.Errorf("read-only %v: it has %d bytes", readOnly, now)
		}
		mustClose(t, v)
	}
}

// TestGrownCut truncates the file in the part that it grew by: requests that need what is gone fail, and nothing else
// does.
func TestGrownCut(t *testing.T) {
	path, _ := filled(t)
	v := mustOpen(t, path, blockdev.Options{})
	lengthen(t, path, 8*mib)
	if err := v.Refresh(); err != nil {
		t.Fatal(err)
	}
	c, b := volumetest.NewClient(v), block(0)
	var loans []blockdev.LoanToken
	for (*v.extents.Load())[0].free.likely(-1) >= 0 { // so that what is written goes to the second extent
		_, loan, err := v.Lend(nil, 4096)
		if err != nil {
			t.Fatal(err)
		}
		loans = append(loans, loan)
	}
	mustWrite(t, c, block(9), 8*4096, false)
	if err := os.Truncate(path, int64(v.super.extents[1].dataOff)); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(b, 8*4096); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("read: %v", err)
	}
	if err := c.Write(b, 0, false); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("write: %v", err)
	}
	if err := c.Read(b, 0); err != nil || b[0] != 1 {
		t.Errorf("what is left: %v", err)
	}
	for _, loan := range loans {
		v.Return(loan)
	}
	v.Close()
}

// TestCutIsTold: if a file was cut so that it couldn't be opened again, Refresh says so, until it is long enough.
func TestCutIsTold(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		path, _ := filled(t)
		v := mustOpen(t, path, blockdev.Options{ReadOnly: readOnly})
		lengthen(t, path, 8*mib)
		if err := v.Refresh(); err != nil {
			t.Fatal(err)
		}
		end := int64(v.super.end())
		for _, cut := range []int64{1, 0} {
			if err := os.Truncate(path, end-cut); err != nil {
				t.Fatal(err)
			}
			err := v.Refresh()
			if told := errors.Is(err, blockdev.ErrInvalid) && strings.Contains(err.Error(), "cut"); told != (cut > 0) || !told && err != nil {
				t.Errorf("read-only %v, %d bytes cut off: %v", readOnly, cut, err)
			}
		}
		mustClose(t, v)
	}
}

// TestGrownOften enlarges the file more often than the superblock has room for extents: what doesn't fit is ignored,
// both by the open volume and by the next open.
func TestGrownOften(t *testing.T) {
	path, _ := filled(t)
	v := mustOpen(t, path, blockdev.Options{})
	var err error
	for n := int64(8); err == nil && n <= 4*(maxExtents+1); n += 4 {
		lengthen(t, path, n*mib)
		err = v.Refresh()
	}
	if !errors.Is(err, errGrownOften) || !errors.Is(err, blockdev.ErrCapacity) || len(v.super.extents) != maxExtents {
		t.Fatalf("%d extents, %v", len(v.super.extents), err)
	}
	size := v.Info().Size
	mustClose(t, v)
	v = mustOpen(t, path, blockdev.Options{})
	defer mustClose(t, v)
	got := make([]byte, 4096)
	if err := volumetest.NewClient(v).Read(got, 7*4096); err != nil || !bytes.Equal(got, block(8)) || v.Info().Size != size {
		t.Errorf("%d bytes of %d, %v", v.Info().Size, size, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := v.Refresh(); !errors.Is(err, errGrownOften) || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("%v: it doesn't say that the file was removed, too", err)
	}
}

// growClosed enlarges the file while no volume is open on it; all is its whole content.
func growClosed(t *testing.T, path string, all []byte) {
	t.Helper()
	lengthen(t, path, 16*mib)
	v := mustOpen(t, path, blockdev.Options{})
	if n := v.Info().Size; n < int64(len(all))+7*mib || len(v.super.extents) != 3 {
		t.Errorf("%d bytes in %d extents", n, len(v.super.extents))
	}
	got := make([]byte, len(all))
	if err := volumetest.NewClient(v).Read(got, 0); err != nil || !bytes.Equal(got, all) {
		t.Errorf("what was there isn't: %v", err)
	}
	if err := volumetest.NewClient(v).Read(got[:mib], int64(len(all))); err != nil || !bytes.Equal(got[:mib], make([]byte, mib)) {
		t.Errorf("what was added isn't zero: %v", err)
	}
	last := v.Info().Size - 4096
	mustWrite(t, volumetest.NewClient(v), block(9), last, false)
	mustClose(t, v)
	if r := mustCheck(t, path, false); !r.Clean() || r.Extents != 3 {
		t.Errorf("%+v", r)
	}
	v = mustOpen(t, path, blockdev.Options{})
	if err := volumetest.NewClient(v).Read(got[:4096], last); err != nil || !bytes.Equal(got[:4096], block(9)) {
		t.Errorf("the last block that was added, when it is opened again: %v", err)
	}
	mustClose(t, v)
}

// TestFormat makes an existing file a volume.
func TestFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	if err := os.WriteFile(path, bytes.Repeat([]byte{0xee}, 16*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Format(path, 512); err != nil {
		t.Fatal(err)
	}
	if r := mustCheck(t, path, false); !r.Clean() || r.Open || r.Used != 0 {
		t.Errorf("not open yet: %+v", r)
	}
	v := mustOpen(t, path, blockdev.Options{})
	if i := v.Info(); i.BlockSize != 512 || i.Size < 7*mib || i.AtomicBlocks != 1 {
		t.Errorf("%+v", i)
	}
	b := block(1)
	if err := volumetest.NewClient(v).Read(b, 0); err != nil || !bytes.Equal(b, make([]byte, 4096)) {
		t.Errorf("not zero: %v", err)
	}
	mustClose(t, v)
	if _, err := inPlace(path, blockdev.Options{}); !errors.Is(err, blockdev.ErrInvalid) {
		t.Errorf("opened in place: %v", err)
	}
	if err := os.Truncate(path, mib); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, blockdev.Options{}); err == nil || !strings.Contains(err.Error(), "cut") {
		t.Errorf("opened what was cut: %v", err)
	}
	for _, size := range []int64{4096, mib, headSize + minSpare} { // the last has no room for a block beyond the spare ones
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if err := Format(path, 0); !errors.Is(err, blockdev.ErrInvalid) || !strings.Contains(err.Error(), "too small") {
			t.Errorf("formatted %d bytes: %v", size, err)
		}
	}
}

// TestAtomicCut truncates the file under the mapping: requests fail, and nothing else does.
func TestAtomicCut(t *testing.T) {
	path, s := filled(t)
	v := mustOpen(t, path, blockdev.Options{})
	if err := os.Truncate(path, int64(s.extents[0].dataOff)+4*4096); err != nil {
		t.Fatal(err)
	}
	c, b := volumetest.NewClient(v), block(0)
	if err := c.Read(b, 0); err != nil || b[0] != 1 {
		t.Errorf("what is left: %v", err)
	}
	if err := c.Read(b, 6*4096); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("read: %v", err)
	}
	if _, _, err := v.View(nil, 0, 8*4096); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("view: %v", err)
	}
	if _, _, err := v.Lend(nil, 4096); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("loan: %v", err)
	}
	if err := c.Write(b, 0, false); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("write: %v", err)
	}
	v.Close()
}
