package persist

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/race"
)

// pageCache is memory in front of a disk, as in Linux: a page that couldn't be written is clean from then on, and no
// sync writes it before something is stored to it again.
type pageCache struct {
	mem, disk []byte
	clean     []byte // mem as it was when it was last clean
	fails     func(offset int) bool
}

// sync is msync.
func (c *pageCache) sync(b []byte) error {
	page := os.Getpagesize()
	from := int(uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&c.mem[0])))
	failed := c.fails(from)
	for at := from &^ (page - 1); at < from+len(b); at += page {
		if bytes.Equal(c.mem[at:at+page], c.clean[at:at+page]) {
			continue
		}
		copy(c.clean[at:], c.mem[at:at+page])
		if !failed {
			copy(c.disk[at:], c.mem[at:at+page])
		}
	}
	if failed {
		return unix.EIO
	}
	return nil
}

// open opens the volume in the cache.
func (c *pageCache) open(t *testing.T) (*atomicVolume, error) {
	t.Helper()
	m := &mapping{mem: c.mem, fs: "simulation"}
	s, errs := readSuper(m)
	if s == nil {
		t.Fatal(errs)
	}
	v, err := newAtomic(m, s, "simulated", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	v.sync = c.sync
	if err := v.recover(); err != nil {
		return nil, errors.Join(err, v.unmapOwn())
	}
	return v, nil
}

// stored reports whether do stores to the page at offset; if so, that ends do, and the page is dirty.
func (c *pageCache) stored(t *testing.T, offset int, do func() error) bool {
	t.Helper()
	page := c.mem[offset:][:os.Getpagesize()]
	if err := unix.Mprotect(page, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	err := do()
	if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	if err != nil && !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	if err != nil {
		c.clean[offset] ^= 1
	}
	return err != nil
}

// TestFailedSyncOfMap: if a page of the durable map couldn't be written, the disk has entries that the page cache
// doesn't have, and the next program regards blocks as free that those name. The page is written before any of them is
// used.
func TestFailedSyncOfMap(t *testing.T) {
	if race.Enabled {
		t.Skip("a fault in the race detector's own code ends the program")
	}
	page := os.Getpagesize()
	far := uint64(page / entrySize) // its entry is in the next page
	rec := layOut(0, alignUp(headSize, uint64(page)), 2*far, 512, true)
	c := &pageCache{mem: mapped(t, int(alignUp(rec.end(512), uint64(page)))), fails: func(int) bool { return false }}
	s := &superblock{generation: 1, blockSize: 512, id: [16]byte{1}, extents: []extentRecord{rec}}
	copy(c.mem[superSize:], s.encode())
	c.disk, c.clean = bytes.Clone(c.mem), bytes.Clone(c.mem)

	v, err := c.open(t)
	if err != nil {
		t.Fatal(err)
	}
	put := func(lba, seq uint64) error {
		t.Helper()
		return volumetest.NewClient(v).Write(stamped(lba, 1, seq), int64(lba)*512, true)
	}
	if err := put(0, 1); err != nil {
		t.Fatal(err)
	}
	c.fails = func(offset int) bool { return offset == int(rec.tableOff) }
	if err := put(0, 2); !errors.Is(err, blockdev.ErrMedium) {
		t.Fatalf("a write whose map wasn't written: %v", err)
	}
	end(t, v)
	if _, err := c.open(t); !errors.Is(err, unix.EIO) {
		t.Errorf("opened again while the map still can't be written: %v", err)
	}

	c.fails = func(int) bool { return false }
	reopen := func() (err error) { v, err = c.open(t); return err }
	if c.stored(t, int(rec.tableOff), reopen) {
		if err := reopen(); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(far, 3); err != nil { // where block 0 was
		t.Fatal(err)
	}
	end(t, v)

	copy(c.mem, c.disk) // the power fails
	copy(c.clean, c.disk)
	if err := reopen(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 512)
	for _, b := range []struct{ lba, seq uint64 }{{0, 2}, {far, 3}} {
		if err := volumetest.NewClient(v).Read(got, int64(b.lba)*512); err != nil || !bytes.Equal(got, stamped(b.lba, 1, b.seq)) {
			t.Errorf("block %d: %v, %x…", b.lba, err, got[:32])
		}
	}
	end(t, v)
}

// TestUnreadableMap: if a checkpoint can't read the working map, or write the durable one, it has forgotten which entries
// changed. So no later flush promises them, even if the map can be used again.
func TestUnreadableMap(t *testing.T) {
	if race.Enabled {
		t.Skip("a fault in the race detector's own code ends the program")
	}
	if os.Getpagesize() > areaAlign {
		t.Skip("maps share pages here")
	}
	for name, which := range map[string]func(*extent) []uint64{
		"working": func(x *extent) []uint64 { return x.work },
		"durable": func(x *extent) []uint64 { return x.durable },
	} {
		v, _ := cachedVolume(t, 64)
		c := volumetest.NewClient(v)
		mustWrite(t, c, block(1)[:512], 0, false)
		table := bytesOf(which((*v.extents.Load())[0]))
		if err := unix.Mprotect(table, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); !errors.Is(err, blockdev.ErrMedium) {
			t.Errorf("%s: flush: %v", name, err)
		}
		if err := unix.Mprotect(table, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); !errors.Is(err, blockdev.ErrMedium) {
			t.Errorf("%s: the next flush: %v", name, err)
		}
		end(t, v)
	}
}

// TestInaccessibleMap: a volume whose maps can't be read isn't opened, and a check of it fails. The same for a repair if
// they can't be written.
func TestInaccessibleMap(t *testing.T) {
	if race.Enabled {
		t.Skip("a fault in the race detector's own code ends the program")
	}
	if os.Getpagesize() > areaAlign {
		t.Skip("maps share pages here")
	}
	path, s := filledIn(t, disk(t))
	rec := s.extents[0]
	patch(t, path, int64(rec.tableOff)+2*entrySize, binary.LittleEndian.AppendUint64(nil, 1<<entryBits))
	m := mapVolume(t, path)
	defer m.close()
	table := m.mem[rec.tableOff:rec.workOff]
	for _, x := range []struct {
		may    int
		repair bool
		want   error
	}{{unix.PROT_NONE, false, errFault}, {unix.PROT_NONE, true, errFault}, {unix.PROT_READ, false, nil}, {unix.PROT_READ, true, errFault}} {
		if err := unix.Mprotect(table, x.may); err != nil {
			t.Fatal(err)
		}
		if _, err := checkMapped(m, path, x.repair); !errors.Is(err, x.want) {
			t.Errorf("accesses allowed: %d, repair: %v: %v", x.may, x.repair, err)
		}
	}
	for _, table := range [][]byte{m.mem[rec.tableOff:rec.workOff], m.mem[rec.workOff:rec.dataOff]} {
		if err := unix.Mprotect(table, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		v, err := openMapped(m, path, blockdev.Options{}, false, nil)
		if v != nil && v.kind != onSync {
			t.Skip("no working maps here")
		}
		if !errors.Is(err, errFault) {
			t.Errorf("opened: %v", err)
		}
		if err := unix.Mprotect(table, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			t.Fatal(err)
		}
	}
}

// end ends a volume, but keeps its memory.
func end(t *testing.T, v *atomicVolume) {
	t.Helper()
	v.life.Close()
	v.pool.Close()
	if err := v.unmapOwn(); err != nil {
		t.Fatal(err)
	}
}

// TestFailedReplay: if the blocks of a killed program's working map couldn't be written, a second attempt to take it
// over would find them clean, and so the durable map counts.
func TestFailedReplay(t *testing.T) {
	path, _ := filled(t)
	v := mustOpen(t, path, blockdev.Options{})
	if v.kind != onSync {
		t.Skip("no working maps here")
	}
	was := make([]byte, 4096)
	if err := errors.Join(volumetest.NewClient(v).Read(was, 0), volumetest.NewClient(v).Write(block(99), 0, false)); err != nil {
		t.Fatal(err)
	}
	sync := v.sync
	v.sync = func(b []byte) error {
		if len(b) == superSize {
			return sync(b)
		}
		return unix.EIO
	}
	if err := v.replay(); !errors.Is(err, unix.EIO) {
		t.Errorf("replay: %v", err)
	}
	abandon(t, v)
	v = mustOpen(t, path, blockdev.Options{})
	got := make([]byte, 4096)
	if err := volumetest.NewClient(v).Read(got, 0); err != nil || !bytes.Equal(got, was) {
		t.Errorf("%v, %d…, want %d…", err, got[0], was[0])
	}
	mustClose(t, v)
}

// TestReplayUnsure: whichever of the syncs of a replay fails, the superblock says so: what the medium has of the maps
// isn't known.
func TestReplayUnsure(t *testing.T) {
	for fails := range 2 {
		path, _ := filled(t)
		v := mustOpen(t, path, blockdev.Options{})
		if v.kind != onSync {
			t.Skip("no working maps here")
		}
		sync, calls := v.sync, 0
		v.sync = func(b []byte) error {
			if len(b) == superSize {
				return sync(b)
			}
			if calls++; calls == fails+1 {
				return unix.EIO
			}
			return sync(b)
		}
		if err := v.replay(); !errors.Is(err, unix.EIO) {
			t.Errorf("sync %d failed: %v", fails, err)
		}
		if v.super.session != unsure {
			t.Errorf("sync %d failed: the session is %+v", fails, v.super.session)
		}
		abandon(t, v)
	}
}
