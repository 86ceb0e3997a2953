package persist

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
	"github.com/nvme-anywhere/nvmeof/internal/race"
)

// TestFullMap fills the file system below a sparse volume until there is no room for the map, either: a write that
// needs some fails, and the others succeed.
func TestFullMap(t *testing.T) {
	if race.Enabled {
		t.Skip("a fault in the race detector's own code ends the program")
	}
	for _, lend := range []bool{false, true} {
		t.Run(map[bool]string{false: "written", true: "lent"}[lend], func(t *testing.T) {
			dir := smallFS(t)
			fillMap(t, filepath.Join(dir, "v"), lend)
		})
	}
}

// smallFS mounts an ext4 of 4 MiB.
func smallFS(t *testing.T) string {
	return disktest.Mount(t, disktest.Image(t, 4*mib), "mkfs.ext4", "-q", "-F")
}

// mapStep is the distance between blocks whose entries are in different pages of the map.
const mapStep = pageSize / entrySize * 4096

// fillMap writes blocks whose entries lie in different pages.
func fillMap(t *testing.T, path string, lend bool) {
	const size = 2048 * mib
	v := mustOpen(t, path, blockdev.Options{Size: size})
	t.Cleanup(func() { v.Close() })
	c := volumetest.NewClient(v)
	write := func(off int64, b []byte) error { return c.Write(b, off, false) }
	if lend {
		write = func(off int64, b []byte) error { return writeLoan(v, c, off, b) }
	}
	before := v.free
	var err error
	var written []int64
	for off := int64(0); err == nil && off < size; off += mapStep {
		if err = write(off, block(int(off/mapStep))); err == nil {
			written = append(written, off)
		}
	}
	if !errors.Is(err, blockdev.ErrCapacity) {
		t.Fatalf("%v after %d writes", err, len(written))
	}
	if got := before - v.free; got != len(written) {
		t.Errorf("%d blocks are gone, %d were written", got, len(written))
	}
	if err := c.Flush(); err != nil {
		t.Fatalf("flush: %v", err)
	}
	// Room for a block, but none for a page of the map.
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Offset: written[0], Length: 4096}); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		t.Fatalf("flush: %v", err)
	}
	if err := write(written[len(written)-1]+mapStep, block(1)); !errors.Is(err, blockdev.ErrCapacity) {
		t.Errorf("a write beyond what there is room for: %v", err)
	}
	if err := c.Write(block(1), written[len(written)-1]+mapStep, true); !errors.Is(err, blockdev.ErrCapacity) {
		t.Errorf("a durable one: %v", err)
	}
	if err := write(written[0], block(0)); err != nil {
		t.Errorf("after a discard made room: %v", err)
	}
	checkSpread(t, c, written)
	mustClose(t, v)
	v = mustOpen(t, path, blockdev.Options{})
	checkSpread(t, volumetest.NewClient(v), written)
	mustClose(t, v)
}

// writeLoan writes through memory that the volume lends.
func writeLoan(v *atomicVolume, c *volumetest.Client, off int64, b []byte) error {
	segs, token, err := v.Lend(nil, int64(len(b)))
	if err != nil {
		return err
	}
	n := int64(len(b))
	for _, s := range segs {
		b = b[copy(s.Bytes, b):]
	}
	return c.Do(blockdev.Request{Op: blockdev.OpWrite, Offset: off, Length: n, Loan: token})
}

// checkSpread reads the blocks that fillMap wrote.
func checkSpread(t *testing.T, c *volumetest.Client, written []int64) {
	t.Helper()
	got := make([]byte, 4096)
	for _, off := range written {
		if err := c.Read(got, off); err != nil || !bytes.Equal(got, block(int(off/mapStep))) {
			t.Errorf("the block at %d: %v", off, err)
		}
	}
}
