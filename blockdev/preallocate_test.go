package blockdev_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestPreallocationCutShort: if a power failure interrupts the reservation of a file's space, the next open makes the
// file the volume, since it is empty until all of its space is there. Here the space runs out where the power would
// fail, and what was reserved can't be freed: ext4 reserves it piece by piece.
func TestPreallocationCutShort(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	dir, _ := disktest.FailingFS(t)
	path, other := filepath.Join(dir, "v"), filepath.Join(dir, "other")
	o := blockdev.Options{Size: 16 * mib, Preallocate: true}
	if err := tryOpen(t, other, o); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	failed := sandbox.FailOnce(t, unix.SYS_FTRUNCATE, unix.EIO)
	mustFail(t, tryOpen(t, path, o), blockdev.ErrCapacity)
	if !failed() || allocated(t, path) == 0 {
		t.Fatal("nothing is left behind")
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if err := tryOpen(t, path, o); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() != o.Size || allocated(t, path) < o.Size {
		t.Errorf("%d bytes of %d are reserved, %v", allocated(t, path), o.Size, err)
	}
	o.Size = 20 * mib
	mustFail(t, tryOpen(t, path, o), blockdev.ErrInvalid, path, "16 MiB", "20 MiB")
}

// TestPreallocatesPlainly: space is also reserved on a file system that does so only by extending the file, as NFS.
func TestPreallocatesPlainly(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	dir, _ := disktest.FailingFS(t)
	path := filepath.Join(dir, "v")
	failed := sandbox.FailOnce(t, unix.SYS_FALLOCATE, unix.EOPNOTSUPP)
	if err := tryOpen(t, path, blockdev.Options{Size: mib, Preallocate: true}); err != nil || !failed() {
		t.Fatalf("%v; refused: %v", err, failed())
	}
	if n := allocated(t, path); n < mib {
		t.Errorf("%d bytes of 1 MiB are reserved", n)
	}
}

// TestPreallocatesNowhere: where no space can be reserved at all, no volume is created that seems to have it.
func TestPreallocatesNowhere(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	sandbox.Refuse(t, unix.SYS_FALLOCATE, unix.EOPNOTSUPP)
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: mib, Preallocate: true}), blockdev.ErrUnsupported, path, "create the volume sparse")
	if _, err := os.Stat(path); err == nil {
		t.Error("it is left")
	}
	if err := tryOpen(t, path, blockdev.Options{Size: mib}); err != nil {
		t.Errorf("a sparse one: %v", err)
	}
}
