package blockdev_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
)

// largeSectors makes the system say that a loop device has physical sectors of 4096 bytes, and logical ones of 512.
func largeSectors(t *testing.T, dev string) {
	t.Helper()
	said := filepath.Join(t.TempDir(), "physical_block_size")
	if err := os.WriteFile(said, []byte("4096\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	attr := "/sys/block/" + filepath.Base(dev) + "/queue/physical_block_size"
	if err := unix.Mount(said, attr, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("mounting needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(attr, 0); err != nil {
			t.Error(err)
		}
	})
}

// TestFileSystemBlocks: a block that is larger than those of the file system may lie across two sectors of the disk,
// even if stat says that the file's best size for transfers is as large as a sector.
func TestFileSystemBlocks(t *testing.T) {
	for _, x := range []struct {
		kind   string
		option string // of mkfs, for the size of blocks
	}{{"ext4", "-b%d"}, {"xfs", "-bsize=%d"}} {
		for _, fsBlock := range []int{1024, 4096} {
			t.Run(fmt.Sprintf("%s, %d", x.kind, fsBlock), func(t *testing.T) {
				dev := loopDevice(t, 320*mib) // an XFS needs at least 300
				dir := disktest.Mount(t, dev, "mkfs."+x.kind, fmt.Sprintf(x.option, fsBlock))
				largeSectors(t, dev)
				for _, block := range []int{1024, 4096} {
					path := filepath.Join(dir, fmt.Sprint(block))
					v, err := blockdev.OpenFile(path, blockdev.Options{Size: mib, BlockSize: block, IO: blockdev.IODirect})
					if err != nil {
						t.Fatal(err)
					}
					whole := v.Info().AtomicBlocks > 0
					if err := v.Close(); err != nil {
						t.Error(err)
					}
					if want := block <= fsBlock; whole != want {
						t.Errorf("blocks of %d bytes are written whole: %v, want %v", block, whole, want)
					}
				}
			})
		}
	}
}
