package persist

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/hangtest"
)

// TestReadOnlyRemount: when the file system below a mapping finds an error and becomes read-only, writes report that at
// the latest when they are to be durable, and reads go on.
func TestReadOnlyRemount(t *testing.T) {
	for name, open := range map[string]openFunc{"out of place": Open, "in place": inPlace} {
		t.Run(name, func(t *testing.T) {
			dir, fail := failingFS(t)
			v, err := open(filepath.Join(dir, "v"), blockdev.Options{Size: mib})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close() // which fails: it can't sync
			c, b := volumetest.NewClient(v), bytes.Repeat([]byte{7}, 64<<10)
			mustWrite(t, c, b, 0, true)
			fail()
			if err := c.Write(b, 128<<10, true); !errors.Is(err, blockdev.ErrReadOnly) {
				t.Errorf("write: %v", err)
			}
			if err := c.Read(b, 0); err != nil || b[0] != 7 {
				t.Errorf("read: %v", err)
			}
		})
	}
}

// failingFS mounts an ext4 that becomes read-only when it finds an error; fail makes it find one.
func failingFS(t *testing.T) (dir string, fail func()) {
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 32*mib); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for _, line := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop,errors=remount-ro", image, dir}} {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %v: %s", line, err, out)
		}
	}
	hangtest.UnmountAfter(t, dir)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir, func() {
		out, err := exec.Command("findmnt", "-n", "-o", "SOURCE", dir).Output()
		if err != nil {
			t.Fatal(err)
		}
		dev := filepath.Base(strings.TrimSpace(string(out)))
		if err := os.WriteFile(filepath.Join("/sys/fs/ext4", dev, "trigger_fs_error"), []byte("on purpose"), 0); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Skipf("this kernel's file system has another end: %v", err)
		}
	}
}
