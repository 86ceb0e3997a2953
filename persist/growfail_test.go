package persist

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// TestGrowthIsTold: the system tells of what it couldn't write once, whoever syncs next, and that may be a volume that
// grows. No flush promises then what was lost.
func TestGrowthIsTold(t *testing.T) {
	path, _ := filled(t)
	v := mustOpen(t, path, blockdev.Options{})
	defer v.Close()
	if v.kind != onSync {
		t.Skip("no page cache here")
	}
	c := volumetest.NewClient(v)
	if err := c.Write(block(99), 0, false); err != nil {
		t.Fatal(err)
	}
	sync, untold := v.sync, error(unix.EIO)
	v.sync = func(b []byte) error {
		err := untold
		untold = nil
		return errors.Join(err, sync(b))
	}
	lengthen(t, path, 8*mib)
	if err := v.Refresh(); !errors.Is(err, unix.EIO) {
		t.Errorf("growing: %v", err)
	}
	if err := c.Flush(); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("a flush of what was lost: %v", err)
	}
	if err := v.Refresh(); !errors.Is(err, unix.EIO) || v.super.session != unsure {
		t.Errorf("growing again: %v; unsure is %v", err, v.super.session == unsure)
	}
}
