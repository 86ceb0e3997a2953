package blockdev_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

func tryOpen(t *testing.T, path string, o blockdev.Options) error {
	t.Helper()
	v, err := blockdev.OpenFile(path, o)
	if err == nil {
		v.Close()
	}
	return err
}

func TestFileOpenErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "v")
	mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrInvalid, path, "give a size")
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: mib, ReadOnly: true}), blockdev.ErrInvalid, "isn't created")
	mustFail(t, tryOpen(t, filepath.Join(dir, "no", "v"), blockdev.Options{Size: mib}), blockdev.ErrInvalid, "directory doesn't exist")
	mustFail(t, tryOpen(t, dir, blockdev.Options{Size: mib}), blockdev.ErrInvalid, "is a directory")
	mustFail(t, tryOpen(t, os.DevNull, blockdev.Options{Size: mib}), blockdev.ErrInvalid, "block device")
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: mib + 512}), blockdev.ErrInvalid, "multiple", "block size of 512")
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: 1 << 60, Preallocate: true}), blockdev.ErrCapacity, path, "1.0 EiB")
	if _, err := os.Stat(path); err == nil {
		t.Fatal("a volume that couldn't be created was left behind")
	}
	if err := tryOpen(t, path, blockdev.Options{Size: mib}); err != nil {
		t.Fatal(err)
	}
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: 2 * mib}), blockdev.ErrInvalid, "1.0 MiB", "2.0 MiB", "remove")
	if err := tryOpen(t, path, blockdev.Options{Size: mib}); err != nil {
		t.Errorf("the size that it has: %v", err)
	}
	os.WriteFile(path, make([]byte, 5000), 0o600)
	mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrInvalid, "5000", "4096", "8192")
	os.Truncate(path, 0)
	mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrInvalid, "empty")
	if err := tryOpen(t, path, blockdev.Options{Size: mib}); err != nil {
		t.Errorf("an empty file with a size: %v", err)
	}
}

// TestFileForbidden: who may not open or create a file is told what to do.
func TestFileForbidden(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "v")
	if err := os.WriteFile(path, make([]byte, mib), 0o400); err != nil {
		t.Fatal(err)
	}
	sandbox.ObeyModes(t, func() {
		mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrReadOnly, path, "open it read-only", "who may write it")
		if err := tryOpen(t, path, blockdev.Options{ReadOnly: true}); err != nil {
			t.Error(err)
		}
		if err := errors.Join(os.Chmod(path, 0), os.Chmod(dir, 0o500)); err != nil {
			t.Error(err)
		}
		mustFail(t, tryOpen(t, path, blockdev.Options{ReadOnly: true}), blockdev.ErrReadOnly, path, "who may read it")
		other := filepath.Join(dir, "other")
		mustFail(t, tryOpen(t, other, blockdev.Options{Size: mib}), blockdev.ErrReadOnly, other, "in a directory that you may write")
	})
}

// TestFileNotDurable: a file whose size can't be made durable isn't created, though a name that the system can't make
// durable is accepted.
func TestFileNotDurable(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	sandbox.Refuse(t, unix.SYS_FSYNC, unix.EINVAL)
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: mib}), blockdev.ErrInvalid, "create", "sync "+path)
	if _, err := os.Stat(path); err == nil {
		t.Error("it is left")
	}
}

// TestFileNameNotDurable: the same where only its name can't be made durable.
func TestFileNameNotDurable(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	failed := sandbox.FailLater(t, unix.SYS_FSYNC, unix.EIO, 1) // of the file
	mustFail(t, tryOpen(t, path, blockdev.Options{Size: mib}), blockdev.ErrMedium, "create", "sync "+filepath.Dir(path))
	if _, err := os.Stat(path); err == nil || !failed() {
		t.Errorf("it is left, or nothing was refused: %v", failed())
	}
}

// No file is created through a dangling symbolic link: its target may be on a disk that isn't there yet.
func TestOpenLinkToNothing(t *testing.T) {
	dir := t.TempDir()
	link, to := filepath.Join(dir, "link"), filepath.Join(dir, "gone.img")
	if err := os.Symlink(to, link); err != nil {
		t.Fatal(err)
	}
	for _, o := range []blockdev.Options{{}, {Size: mib}, {ReadOnly: true}} {
		err := tryOpen(t, link, o)
		mustFail(t, err, blockdev.ErrInvalid, link, "symbolic link to "+to)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: %v, want fs.ErrNotExist", o, err)
		}
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("a file was made")
	}
	if err := os.WriteFile(to, make([]byte, mib), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tryOpen(t, link, blockdev.Options{}); err != nil {
		t.Errorf("a link that leads to a file: %v", err)
	}
}

// TestTwoCreators: of two who create a file at the same moment one has it, and the other is told that it is in use.
func TestTwoCreators(t *testing.T) {
	for i := range 50 {
		path := filepath.Join(t.TempDir(), "v")
		var vols [2]blockdev.Volume
		var errs [2]error
		var both sync.WaitGroup
		for j := range 2 {
			both.Go(func() {
				vols[j], errs[j] = blockdev.OpenFile(path, blockdev.Options{Size: 1 << 20, IO: blockdev.IOBuffered})
			})
		}
		both.Wait()
		opened := 0
		for j, v := range vols {
			if v != nil {
				opened++
				v.Close()
			} else if !errors.Is(errs[j], blockdev.ErrBusy) {
				t.Fatalf("attempt %d: %v", i, errs[j])
			}
		}
		if opened > 1 {
			t.Fatalf("attempt %d: %d have it", i, opened)
		}
	}
}

// TestHugePages: where files lie in huge pages, the error says how large they have to be, and that they can only be
// mapped.
func TestHugePages(t *testing.T) {
	path := filepath.Join(disktest.HugePages(t), "v")
	for size, want := range map[int64]string{4096: "has a multiple of", 4 << 30: "name it pmem:" + path} {
		err := tryOpen(t, path, blockdev.Options{Size: size})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "seccomp") {
			t.Errorf("a volume of %d bytes: %v, want %q", size, err, want)
		}
	}
}
