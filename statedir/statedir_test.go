package statedir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/hangtest"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSave: what was saved last is there again, also after the directory is opened again.
func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "state [1]")
	d := open(t, path)
	if b, err := d.Load("a"); b != nil || err != nil {
		t.Errorf("before the first Save: %q, %v", b, err)
	}
	for _, s := range []string{"one", "two, longer", ""} {
		if err := d.Save("a", []byte(s)); err != nil {
			t.Fatal(err)
		}
		if b, err := d.Load("a"); err != nil || string(b) != s {
			t.Errorf("%q, %v, want %q", b, err, s)
		}
	}
	if err := d.Save("b", []byte("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, the directory has mode %v", err, info.Mode())
	}
	files, err := os.ReadDir(path)
	if err != nil || len(files) != 2 || files[0].Name() != "a.state" || files[1].Name() != "b.state" {
		t.Errorf("%v, there are %v, want a file for each name and nothing else", err, files)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	d = open(t, path)
	defer d.Close()
	if b, err := d.Load("b"); err != nil || string(b) != "b" {
		t.Errorf("%q, %v", b, err)
	}
	for _, name := range []string{"", ".", "..", "../a", "a/b", ".hidden"} {
		if err := d.Save(name, nil); err == nil {
			t.Errorf("saved under %q", name)
		}
		if _, err := d.Load(name); err == nil {
			t.Errorf("loaded %q", name)
		}
	}
}

// TestClosed: a closed directory, which another program may have open by now, is left alone.
func TestClosed(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	if err := errors.Join(d.Save("a", []byte("before")), d.Close()); err != nil {
		t.Fatal(err)
	}
	_, err := d.Load("a")
	for _, err := range []error{err, d.Save("a", []byte("after")), d.Delete("a"), d.Close()} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
	}
	d = open(t, path)
	defer d.Close()
	if b, err := d.Load("a"); err != nil || string(b) != "before" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestMoved: nothing is loaded from, or saved in, a directory that took the place of the locked one, which another
// program may use, and nothing counts as never saved because the directory is gone. When it is back, all is as before.
func TestMoved(t *testing.T) {
	for what, replace := range map[string]func(path string) error{
		"removed":  func(string) error { return nil },
		"replaced": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(t.TempDir(), "state")
		d := open(t, path)
		defer d.Close()
		if err := d.Save("a", []byte("before")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Rename(path, path+".old"), replace(path)); err != nil {
			t.Fatal(err)
		}
		b, err := d.Load("a")
		for op, err := range map[string]error{"load": err, "save": d.Save("a", []byte("after")), "delete": d.Delete("a")} {
			if !errors.Is(err, errMoved) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s, %s: %q, %v", what, op, b, err)
			}
		}
		if files, _ := os.ReadDir(path); len(files) > 0 {
			t.Errorf("%s: in the other directory is %v", what, files)
		}
		if err := errors.Join(os.RemoveAll(path), os.Rename(path+".old", path)); err != nil {
			t.Fatal(err)
		}
		if b, err := d.Load("a"); err != nil || string(b) != "before" {
			t.Errorf("%s: when it is back: %q, %v", what, b, err)
		}
		if err := d.Save("a", []byte("after")); err != nil {
			t.Errorf("%s: when it is back: %v", what, err)
		}
	}
}

// TestCloseDuringSave: a directory is released, to another program perhaps, only after what is being saved there. The
// Save hangs, as its new file is a pipe that nobody reads, until the directory has been found in use.
func TestCloseDuringSave(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	pipe := filepath.Join(path, "a"+suffix+unfinished)
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var saving, closing sync.WaitGroup
	saving.Go(func() { _ = d.Save("a", nil) }) // it fails, as a pipe can't be made durable
	for d.mu.TryLock() {                       // until something is being saved
		d.mu.Unlock()
		runtime.Gosched()
	}
	closing.Go(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 1000 {
		runtime.Gosched()
	}
	if other, err := Open(path); !errors.Is(err, ErrInUse) {
		t.Errorf("opened during a Save: %v", err)
		if err == nil {
			other.Close()
		}
	}
	r, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	saving.Wait()
	closing.Wait()
	open(t, path).Close()
}

// TestLoadNoFile: something that isn't a regular file is refused at once. A pipe would never be read to its end, nor
// would a device. Saving replaces it.
func TestLoadNoFile(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	defer d.Close()
	for name, err := range map[string]error{
		"pipe":      unix.Mkfifo(filepath.Join(path, "pipe.state"), 0o600),
		"device":    os.Symlink("/dev/zero", filepath.Join(path, "device.state")),
		"directory": os.Mkdir(filepath.Join(path, "directory.state"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
		if b, err := d.Load(name); !errors.Is(err, errNotRegular) || !strings.Contains(err.Error(), name+".state") {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	if err := d.Save("pipe", []byte("now a file")); err != nil {
		t.Fatal(err)
	}
	if b, err := d.Load("pipe"); err != nil || string(b) != "now a file" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestCreate: the names of all directories that are created become durable, and that of an existing one.
func TestCreate(t *testing.T) {
	top := t.TempDir()
	path := filepath.Join(top, "a", "b", "c")
	for _, want := range [][]string{{filepath.Join(top, "a", "b"), filepath.Join(top, "a"), top}, {filepath.Join(top, "a", "b")}} {
		var synced []string
		if err := create(path, 0o700, func(dir string) error {
			synced = append(synced, dir)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(synced, want) {
			t.Errorf("%q were made durable, want %q", synced, want)
		}
	}
	broken := errors.New("broken")
	if err := create(filepath.Join(top, "d"), 0o700, func(string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a sync that fails: %v", err)
	}
}

// TestCrash: whatever part of a Save's file is left after a crash, the old content is valid.
func TestCrash(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	old := []byte("old content")
	if err := d.Save("a", old); err != nil {
		t.Fatal(err)
	}
	d.Close()
	for _, left := range []string{"", "new", "new content, whole"} {
		file := filepath.Join(path, "a.state.new")
		if err := os.WriteFile(file, []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
		d = open(t, path)
		if b, err := d.Load("a"); err != nil || !bytes.Equal(b, old) {
			t.Errorf("%q, %v", b, err)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the unfinished file is left: %v", err)
		}
		d.Close()
	}
}

// TestApart: saving and loading wait for a disk, and must not hold up what a ring has under way on the caller's thread.
func TestApart(t *testing.T) {
	hangtest.BusyThread(t)
	d := open(t, t.TempDir())
	defer d.Close()
	look := func(what string, err error, called, held bool) {
		t.Helper()
		if err != nil || !called || held {
			t.Errorf("%s: called %v, a read was held up %v, %v", what, called, held, err)
		}
	}
	called, held := false, false
	err := d.change("a", func(string) error {
		called, held = true, hangtest.Busy()
		return nil
	})
	look("a file of a Dir", err, called, held)
	called, held = false, false
	_, err = place(filepath.Join(t.TempDir(), "a"), nil, 0o600, nil, func(string, string) error {
		called, held = true, hangtest.Busy()
		return nil
	})
	look("a single file", err, called, held)
	if err := os.Symlink("/proc/thread-self/status", filepath.Join(d.path, "b"+suffix)); err != nil {
		t.Fatal(err)
	}
	status, err := d.Load("b")
	look("loading", err, bytes.Contains(status, []byte("\nPid:")), bytes.Contains(status, fmt.Appendf(nil, "\nPid:\t%d\n", unix.Gettid())))
}

// TestNoSyncOfNames: state can be kept on a file system that can't sync a directory.
func TestNoSyncOfNames(t *testing.T) {
	d := open(t, t.TempDir())
	defer d.dir.Close()
	proc, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	if err := proc.Sync(); !errors.Is(err, unix.EINVAL) {
		t.Skipf("a sync of /proc: %v", err)
	}
	d.dir = proc
	if err := d.Save("a", []byte("content")); err != nil {
		t.Error(err)
	}
	if b, err := d.Load("a"); err != nil || string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
	if err := d.Delete("a"); err != nil {
		t.Error(err)
	}
}

// TestSaveFails: the old content stays if the new one can't be written, or made durable, and the caller gets an error.
func TestSaveFails(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	defer d.Close()
	if err := d.Save("a", []byte("old")); err != nil {
		t.Fatal(err)
	}
	unfinished := filepath.Join(path, "a.state.new")
	for what, begin := range map[string]func() error{
		"no file":                    func() error { return os.Mkdir(unfinished, 0o700) },
		"no room":                    func() error { return os.Symlink("/dev/full", unfinished) },
		"what can't be made durable": func() error { return os.Symlink(os.DevNull, unfinished) },
	} {
		if err := begin(); err != nil {
			t.Fatal(err)
		}
		if err := d.Save("a", []byte("new")); err == nil {
			t.Errorf("saved in %s", what)
		}
		if b, err := d.Load("a"); err != nil || string(b) != "old" {
			t.Errorf("%s: %q, %v", what, b, err)
		}
		if _, err := os.Lstat(unfinished); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: what is unfinished is left: %v", what, err)
		}
	}
	if err := os.Mkdir(filepath.Join(path, "b.state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Save("b", nil); err == nil {
		t.Error("a file has the name of a directory")
	}
	if _, err := d.Load("b"); err == nil {
		t.Error("a directory was read")
	}
	if err := os.Symlink("loop.state", filepath.Join(path, "loop.state")); err != nil {
		t.Fatal(err)
	}
	if b, err := d.Load("loop"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("%q, %v of what can't be read, as if nothing were saved", b, err)
	}
}

// TestNameLost: Save and Delete return an error if names can't be made durable.
func TestNameLost(t *testing.T) {
	d := open(t, t.TempDir())
	d.Close()
	if err := d.Save("a", nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("saved: %v", err)
	}
	if err := d.Delete("a"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("deleted: %v", err)
	}
}

// TestNamesNotDurable: if names can't be made durable, what was saved before is there after the error, also for the next
// Open.
func TestNamesNotDurable(t *testing.T) {
	save := func(d *Dir, name string) error { return d.Save(name, []byte("new")) }
	for what, x := range map[string]struct {
		synced int // files, before the names
		name   string
		change func(d *Dir, name string) error
		want   []byte
	}{
		"saved":   {1, "a", save, []byte("old")},
		"created": {1, "b", save, nil},
		"deleted": {0, "a", (*Dir).Delete, []byte("old")},
	} {
		t.Run(what, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			path := t.TempDir()
			d := open(t, path)
			if err := d.Save("a", []byte("old")); err != nil {
				t.Fatal(err)
			}
			failed := sandbox.FailLater(t, unix.SYS_FSYNC, unix.EIO, x.synced)
			if err := x.change(d, x.name); !errors.Is(err, unix.EIO) || !failed() {
				t.Errorf("%v, want %v", err, unix.EIO)
			}
			d.Close()
			d = open(t, path)
			defer d.Close()
			if b, err := d.Load(x.name); err != nil || !bytes.Equal(b, x.want) {
				t.Errorf("%q, %v, want %q", b, err, x.want)
			}
		})
	}
}

// TestNothingDurableAnyMore: the same, if from then on the system can't make anything durable.
func TestNothingDurableAnyMore(t *testing.T) {
	save := func(path string) error { return replace(path, []byte("new")) }
	for what, x := range map[string]struct {
		name   string
		change func(path string) error
		want   []byte
	}{
		"saved":   {"a", save, []byte("old")},
		"created": {"b", save, nil},
		"deleted": {"a", remove, []byte("old")},
	} {
		t.Run(what, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			path := t.TempDir()
			d := open(t, path)
			defer d.Close()
			if err := d.Save("a", []byte("old")); err != nil {
				t.Fatal(err)
			}
			if err := d.change(x.name, func(path string) error {
				defer sandbox.Refuse(t, unix.SYS_FSYNC, unix.EIO)
				return x.change(path)
			}); !errors.Is(err, unix.EIO) {
				t.Errorf("%v, want %v", err, unix.EIO)
			}
			if b, err := d.Load(x.name); err != nil || !bytes.Equal(b, x.want) {
				t.Errorf("%q, %v, want %q", b, err, x.want)
			}
			is(t, filepath.Join(path, "a.state"), "old", 0o600)
		})
	}
}

// oneName returns a directory with the state a, "old", on a file system whose files have only one name.
func oneName(t *testing.T) (d *Dir, path string) {
	t.Helper()
	path = t.TempDir()
	d = open(t, path)
	if err := d.Save("a", []byte("old")); err != nil {
		t.Fatal(err)
	}
	sandbox.Refuse(t, unix.SYS_LINKAT, unix.EPERM)
	return d, path
}

// TestOneName: on a file system whose files have only one name a Save is undone, too.
func TestOneName(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	d, path := oneName(t)
	defer d.Close()
	if err := d.Save("a", []byte("older")); err != nil {
		t.Error(err)
	}
	failed := sandbox.FailLater(t, unix.SYS_FSYNC, unix.EIO, 2) // the copy and the new file are durable
	if err := d.Save("a", []byte("new")); !errors.Is(err, unix.EIO) || !failed() {
		t.Errorf("%v, want %v", err, unix.EIO)
	}
	is(t, filepath.Join(path, "a.state"), "older", 0o600)
}

// TestNoCopy: if the copy that a Save would be undone with can't be made there, nothing is saved.
func TestNoCopy(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	d, path := oneName(t)
	defer d.Close()
	failed := sandbox.FailOnce(t, unix.SYS_FSYNC, unix.EIO)
	if err := d.Save("a", []byte("new")); !errors.Is(err, unix.EIO) || !failed() {
		t.Errorf("%v, want %v", err, unix.EIO)
	}
	is(t, filepath.Join(path, "a.state"), "old", 0o600)
}

// TestOpenFails: Open fails if the directory can't be created or read, or what a crash left can't be removed.
func TestOpenFails(t *testing.T) {
	path := t.TempDir()
	file, left := filepath.Join(path, "file"), filepath.Join(path, "left", "a.state.new", "b")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.MkdirAll(left, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := MakeDir(file, 0o700); err == nil {
		t.Error("a file was made a directory")
	}
	for _, p := range []string{file, filepath.Join(file, "below"), filepath.Join(path, "left")} {
		d, err := Open(p)
		if err == nil {
			d.Close()
			t.Errorf("%s was opened", p)
		} else if errors.Is(err, ErrInUse) {
			t.Error(err)
		}
	}
	if err := os.RemoveAll(left); err != nil { // and is nobody's
		t.Fatal(err)
	}
	open(t, filepath.Join(path, "left")).Close()
}

// TestOpenUnwritable: Open fails if the program may not write to the directory.
func TestOpenUnwritable(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o500); err != nil {
		t.Fatal(err)
	}
	sandbox.ObeyModes(t, func() {
		d, err := Open(path)
		if err == nil {
			d.Close()
		}
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "write to "+path) {
			t.Error(err)
		}
	})
}

// TestDelete: what was deleted is gone, and may have been gone before; what can't be deleted is an error.
func TestDelete(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	defer d.Close()
	if err := d.Save("a", []byte("content")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Delete("a"); err != nil {
			t.Error(err)
		}
		if b, err := d.Load("a"); b != nil || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(path, "b.state", "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "../b"} {
		if err := d.Delete(name); err == nil {
			t.Errorf("deleted %q", name)
		}
	}
}

// TestSaveFailure: the error says what prevented the Save, and not what followed from it.
func TestSaveFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	d := open(t, path)
	defer d.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	err := d.Save("a", []byte("a"))
	if err == nil || strings.Contains(err.Error(), "remove") {
		t.Errorf("saved where the directory is gone: %v", err)
	}
}
