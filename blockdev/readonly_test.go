package blockdev_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// failingFS mounts an ext4 that becomes read-only when it finds an error; fail makes it find one.
func failingFS(t *testing.T) (dir string, fail func()) {
	dev := loopDevice(t, 32*mib)
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", dev).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v: %s", err, out)
	}
	dir = t.TempDir()
	if err := unix.Mount(dev, dir, "ext4", 0, "errors=remount-ro"); err != nil {
		t.Skipf("mounting needs root: %v", err)
	}
	t.Cleanup(func() { mustUnmount(t, dir) })
	return dir, func() {
		if err := os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(dev), "trigger_fs_error"), []byte("on purpose"), 0); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Skipf("this kernel's file system has another end: %v", err)
		}
	}
}

// TestFileReadOnlyRemount: when the file system becomes read-only, writes say so, and reads go on.
func TestFileReadOnlyRemount(t *testing.T) {
	for name, mode := range map[string]blockdev.IOMode{
		"uring": blockdev.IOUring, "direct": blockdev.IODirect, "buffered": blockdev.IOBuffered,
	} {
		t.Run(name, func(t *testing.T) {
			dir, fail := failingFS(t)
			v, err := blockdev.OpenFile(filepath.Join(dir, "v"), blockdev.Options{Size: mib, IO: mode})
			if err != nil {
				t.Skip(err)
			}
			defer v.Close() // which fails: it can't sync
			c, b := volumetest.NewClient(v), bytes.Repeat([]byte{7}, 64<<10)
			if err := c.Write(b, 0, true); err != nil {
				t.Fatal(err)
			}
			fail()
			mustFail(t, c.Write(b, 128<<10, true), blockdev.ErrReadOnly, "write", "at byte")
			mustFail(t, c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: 0, Length: 4096}), blockdev.ErrReadOnly)
			if err := c.Read(b, 0); err != nil || b[0] != 7 {
				t.Errorf("read: %v", err)
			}
		})
	}
}

// mustUnmount unmounts a file system whose volumes are closed: nothing may hold it any more.
func mustUnmount(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, 0); err != nil {
		t.Errorf("unmounting after all volumes were closed: %v", err)
		unix.Unmount(dir, unix.MNT_DETACH)
	}
}
