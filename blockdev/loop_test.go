package blockdev_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
)

// loopDevice makes a loop device of a new file.
func loopDevice(t *testing.T, size int64, options ...string) string {
	t.Helper()
	return disktest.LoopDevice(t, disktest.Image(t, size), options...)
}

// backing returns the file of a loop device.
func backing(t *testing.T, dev string) string {
	t.Helper()
	b, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestLoopDeviceFile: a file and the loop device made of it are one volume, which may be opened more than once only for
// reading.
func TestLoopDeviceFile(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		args := []string{}
		if readOnly {
			args = append(args, "--read-only")
		}
		dev := loopDevice(t, 4*mib, args...)
		b, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/loop/backing_file")
		if err != nil {
			t.Skip(err)
		}
		file := strings.TrimSpace(string(b))
		link := file + ".link"
		if err := os.Link(file, link); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{file, link} {
			mustFail(t, tryOpen(t, name, blockdev.Options{}), blockdev.ErrBusy, name, dev)
			if err := tryOpen(t, name, blockdev.Options{ReadOnly: true}); (err == nil) != readOnly {
				t.Errorf("to read, of a device that is read-only %v: %v", readOnly, err)
			}
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		o := blockdev.Options{ReadOnly: readOnly}
		for how, want := range map[int]bool{unix.LOCK_UN: true, unix.LOCK_SH: readOnly, unix.LOCK_EX: false} {
			if err := unix.Flock(int(f.Fd()), how); err != nil {
				t.Fatal(err)
			}
			if err := tryOpen(t, dev, o); want && err != nil {
				t.Errorf("lock %d of the file, device read-only %v: %v", how, readOnly, err)
			} else if !want {
				mustFail(t, err, blockdev.ErrBusy, dev, file)
			}
		}
	}
}

// TestLoopDeviceOfDevice: a device, a loop device made of it and the file below both are one volume.
func TestLoopDeviceOfDevice(t *testing.T) {
	below := loopDevice(t, 4*mib)
	above := disktest.LoopDevice(t, below)
	node := filepath.Join(t.TempDir(), "node")
	var st unix.Stat_t
	if err := errors.Join(unix.Stat(below, &st), unix.Mknod(node, unix.S_IFBLK|0o600, int(st.Rdev))); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{below, node} {
		mustFail(t, tryOpen(t, name, blockdev.Options{}), blockdev.ErrBusy, name, above)
	}
	f, err := os.Open(backing(t, below))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := tryOpen(t, above, blockdev.Options{}); err != nil {
		t.Errorf("nobody has the file: %v", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	mustFail(t, tryOpen(t, above, blockdev.Options{}), blockdev.ErrBusy, above, f.Name())
}
