package blockdev_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestDescriptorsUsedUp: a volume for which there are too few descriptors isn't opened for now, rather than through the
// page cache, or along with a loop device of its file.
func TestDescriptorsUsedUp(t *testing.T) {
	path, o, inside := sandboxedFile(t)
	if !inside {
		return
	}
	failed := 0
	for _, o.IO = range []blockdev.IOMode{blockdev.IODirect, blockdev.IOAuto} {
		for more := range 40 {
			v, err := openWith(t, more, path, o)
			if err != nil {
				failed++
				if !errors.Is(err, blockdev.ErrBusy) {
					t.Errorf("%d descriptors more, mode %d: %v", more, o.IO, err)
				}
				continue
			}
			if m := v.Info().Mode; !strings.HasPrefix(m, "direct I/O") {
				t.Errorf("%d descriptors more, mode %d: %s", more, o.IO, m)
			}
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if failed == 0 {
		t.Error("there always were enough")
	}
}

// TestDescriptorsUsedUpLoop: even if descriptors are used up, it is noticed that a file is a loop device's, or that a
// loop device's file is locked as another volume.
func TestDescriptorsUsedUpLoop(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	dev := loopDevice(t, 4*mib)
	file := backing(t, dev)
	other, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, path := range []string{file, dev} {
		if path == dev {
			if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
		}
		for more := range 40 {
			v, err := openWith(t, more, path, blockdev.Options{IO: blockdev.IOBuffered})
			if !errors.Is(err, blockdev.ErrBusy) {
				t.Errorf("%s, %d descriptors more: %v", path, more, err)
			}
			if err == nil {
				v.Close()
			}
		}
	}
}

// openWith opens a volume when the program may open only this many more descriptors.
func openWith(t *testing.T, more int, path string, o blockdev.Options) (blockdev.Volume, error) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	free, err := unix.Dup(0) // the lowest free one
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	now := was
	now.Cur = uint64(free + more)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	v, err := blockdev.OpenFile(path, o)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	return v, err
}
