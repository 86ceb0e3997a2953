package blockdev

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestDirectory: volumes of a directory exist when it is reopened, have their content, and disappear when they are
// removed.
func TestDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "volumes")
	d, err := OpenDirectory(path, 1<<30, Options{IO: IOBuffered})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDirectory(path, 1, Options{}); !errors.Is(err, ErrBusy) {
		t.Errorf("opened twice: %v", err)
	}
	for _, name := range []string{"a", "b", "c"} {
		v, err := d.Create(name, 1<<20, 512)
		if err != nil {
			t.Fatal(err)
		}
		if i := v.Info(); i.Size != 1<<20 || i.BlockSize != 512 {
			t.Errorf("made %+v", i)
		}
		if _, err := d.Create(name, 1<<20, 512); !errors.Is(err, fs.ErrExist) {
			t.Errorf("made twice: %v", err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "../x", "a/b"} {
		if _, err := d.Create(name, 1<<20, 512); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := d.Open("z", 1<<20, 512); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened what isn't there: %v", err)
	}
	if err := d.Remove("b"); err != nil {
		t.Error(err)
	}
	if err := d.Remove("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed twice: %v", err)
	}
	if err := d.Remove("c"); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	_, created := d.Create("d", 1<<20, 512)
	_, opened := d.Open("a", 1<<20, 512)
	for _, err := range []error{created, opened, d.Remove("a")} {
		if !errors.Is(err, ErrGone) || !errors.Is(err, fs.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	if all, err := os.ReadDir(path); err != nil || len(all) != 1 || all[0].Name() != "a.volume" {
		t.Errorf("left is %v, %v", all, err)
	}
	if d, err = OpenDirectory(path, 1<<30, Options{}); err != nil {
		t.Fatal(err)
	}
	v, err := d.Open("a", 1<<20, 512)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(v.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// TestDirectoryMoved: no volume is made in a directory that took the place of the locked one, which another program may
// use, and none counts as removed because the directory is elsewhere.
func TestDirectoryMoved(t *testing.T) {
	for what, replace := range map[string]func(path string) error{
		"removed":  func(string) error { return nil },
		"replaced": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(t.TempDir(), "volumes")
		d, err := OpenDirectory(path, 1<<30, Options{IO: IOBuffered})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		v, err := d.Create("a", 1<<20, 512)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(v.Close(), os.Rename(path, path+".old"), replace(path)); err != nil {
			t.Fatal(err)
		}
		_, created := d.Create("b", 1<<20, 512)
		_, opened := d.Open("a", 1<<20, 512)
		for op, err := range map[string]error{"create": created, "open": opened, "remove": d.Remove("a")} {
			if !errors.Is(err, ErrGone) || !errors.Is(err, errDirectoryMoved) {
				t.Errorf("%s, %s: %v", what, op, err)
			}
		}
		if err := errors.Join(os.RemoveAll(path), os.Rename(path+".old", path), d.Remove("a")); err != nil {
			t.Errorf("%s: when it is back: %v", what, err)
		}
	}
}

// TestDirectoryNotDurable: if it isn't certain that a file exists, or is gone, after a power failure, that is an error.
func TestDirectoryNotDurable(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "volumes")
	d, err := OpenDirectory(path, 1<<30, Options{IO: IOBuffered})
	if err != nil {
		t.Fatal(err)
	}
	v, err := d.Create("a", 1<<20, 512)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	sandbox.Refuse(t, unix.SYS_FSYNC, unix.EIO)
	if err := d.Remove("a"); !errors.Is(err, unix.EIO) {
		t.Errorf("removed: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := OpenDirectory(path, 1<<30, Options{}); !errors.Is(err, ErrMedium) {
		t.Errorf("opened: %v", err)
	}
}
