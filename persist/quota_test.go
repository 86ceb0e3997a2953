package persist

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
	"github.com/nvme-anywhere/nvmeof/internal/race"
)

// TestQuota: a write for which a quota leaves no page is reported like one on a full file system.
func TestQuota(t *testing.T) {
	if race.Enabled {
		t.Skip("a fault in the race detector's own code ends the program")
	}
	for name, open := range map[string]openFunc{"out of place": Open, "in place": inPlace} {
		t.Run(name, func(t *testing.T) {
			dir := disktest.Mount(t, disktest.Image(t, 256*mib), "mkfs.btrfs", "-q", "--mixed")
			for _, args := range [][]string{{"quota", "enable", dir}, {"qgroup", "limit", "16M", dir}} {
				if out, err := exec.Command("btrfs", args...).CombinedOutput(); err != nil {
					t.Skipf("btrfs %v: %v: %s", args, err, out)
				}
			}
			v, err := open(filepath.Join(dir, "v"), blockdev.Options{Size: 64 * mib})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close() // which fails: Btrfs overwrites nothing in place, and needs more space for it
			c, b := volumetest.NewClient(v), make([]byte, mib)
			for off := int64(0); err == nil && off < 64*mib; off += mib {
				err = c.Write(b, off, false)
			}
			if !errors.Is(err, blockdev.ErrCapacity) || !errors.Is(err, unix.EDQUOT) {
				t.Errorf("%v", err)
			}
		})
	}
}
