package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// is checks a file's content and permissions, and that nothing else is in its directory.
func is(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || string(b) != content {
		t.Errorf("%q, %v; want %q", b, err, content)
	}
	if st, err := os.Stat(path); err == nil && st.Mode() != mode {
		t.Errorf("mode %v, want %v", st.Mode(), mode)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("the directory has %v, %v", all, err)
	}
}

func TestCreateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := CreateFile(path, []byte("one"), 0o644); err != nil {
		t.Fatal(err)
	}
	is(t, path, "one", 0o644)
	if err := CreateFile(path, []byte("two"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second time: %v", err)
	}
	is(t, path, "one", 0o644)
	if err := CreateFile(filepath.Join(path, "b"), nil, 0o600); err == nil {
		t.Error("a file was made in a file")
	}
}

func TestReplaceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for _, content := range []string{"one", "two"} {
		if err := ReplaceFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		is(t, path, content, 0o600)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(path, []byte("three"), 0o600); err != nil {
		t.Fatal(err)
	}
	is(t, path, "three", 0o640)
}

// TestAbandoned: what a killed writer left of a file is removed when the file is created or replaced, and a file that
// is still being written stays, or gets another name.
func TestAbandoned(t *testing.T) {
	for name, do := range map[string]func(string, []byte, fs.FileMode) error{"create": CreateFile, "replace": ReplaceFile} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a[*]")
			left, err := createBeside(path)
			if err != nil {
				t.Fatal(err)
			}
			written, err := createBeside(path)
			if err != nil {
				t.Fatal(err)
			}
			others, err := createBeside(filepath.Join(dir, "a*"))
			if err := errors.Join(err, left.Close(), others.Close(), do(path, []byte("one"), 0o600)); err != nil {
				t.Fatal(err)
			}
			for f, want := range map[*os.File]bool{left: false, written: true, others: true} {
				if _, err := os.Stat(f.Name()); (err == nil) != want {
					t.Errorf("%s: %v; want it there: %v", f.Name(), err, want)
				}
			}
			if err := errors.Join(os.Remove(others.Name()), os.Remove(written.Name())); err != nil {
				t.Fatal(err)
			}
			if lockNamed(written) {
				t.Error("a file that somebody removed counts as one that has its name")
			}
			is(t, path, "one", 0o600)
			written.Close()
		})
	}
}

// TestReplaceLinked: a link stays, and the file that it points to is replaced, in its own directory; a dangling link is
// an error, and stays too.
func TestReplaceLinked(t *testing.T) {
	dir, links := t.TempDir(), t.TempDir()
	file, link := filepath.Join(dir, "a"), filepath.Join(links, "link")
	if err := os.WriteFile(file, []byte("one"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(link, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	is(t, file, "two", 0o640)
	if to, err := os.Readlink(link); err != nil || to != file {
		t.Errorf("the link leads to %q, %v; want %q", to, err, file)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(link, []byte("three"), 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link that leads nowhere: %v", err)
	}
	if to, err := os.Readlink(link); err != nil || to != file {
		t.Errorf("the link leads to %q, %v; want %q", to, err, file)
	}
}

// TestReplaceKeepsOwner: a file keeps its owner and group when root replaces it: otherwise a service whose
// configuration root has saved could no longer read it.
func TestReplaceKeepsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	path := filepath.Join(t.TempDir(), "a")
	if err := errors.Join(os.WriteFile(path, []byte("one"), 0o640), os.Chown(path, 12, 34)); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(path, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	is(t, path, "two", 0o640)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Uid != 12 || st.Gid != 34 {
		t.Errorf("it belongs to %d:%d, %v; want 12:34", st.Uid, st.Gid, err)
	}
}

// TestReplaceKeepsGroup: a file keeps its group when somebody replaces it who is in that group, but isn't its owner:
// otherwise the others of the group could no longer read it.
func TestReplaceKeepsGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := errors.Join(os.WriteFile(path, []byte("one"), 0o600), os.Chown(path, 0, 34), os.Chmod(path, 0o660),
		os.Chown(dir, 0, 34), os.Chmod(dir, 0o770), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Skipf("files of others: %v", err)
	}
	replaced := make(chan error)
	var denied unix.Errno
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		group := uint32(34)
		_, _, groups := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&group)), 0)
		_, _, gid := unix.RawSyscall(unix.SYS_SETGID, 12, 0, 0)
		_, _, uid := unix.RawSyscall(unix.SYS_SETUID, 12, 0, 0)
		if denied = groups | gid | uid; denied == 0 {
			replaced <- ReplaceFile(path, []byte("two"), 0o600)
		}
		close(replaced)
	}()
	err := <-replaced
	if denied != 0 {
		t.Skipf("becoming somebody else: %v", denied)
	}
	if err != nil {
		t.Fatal(err)
	}
	is(t, path, "two", 0o660)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Uid != 12 || st.Gid != 34 {
		t.Errorf("it belongs to %d:%d, %v; want 12:34", st.Uid, st.Gid, err)
	}
}

// TestNothingDurable: if the system can't make a file durable, none appears, the old one stays, and the caller gets an
// error; the same goes for a directory.
func TestNothingDurable(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := CreateFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	sandbox.Refuse(t, unix.SYS_FSYNC, unix.EIO)
	if err := ReplaceFile(path, []byte("two"), 0o600); !errors.Is(err, unix.EIO) {
		t.Errorf("replaced: %v", err)
	}
	if err := CreateFile(filepath.Join(dir, "b"), []byte("two"), 0o600); !errors.Is(err, unix.EIO) {
		t.Errorf("created: %v", err)
	}
	is(t, path, "one", 0o600)
	if err := MakeDir(dir, 0o700); !errors.Is(err, unix.EIO) {
		t.Errorf("made: %v", err)
	}
}

// TestNameNotDurable: the caller gets an error if the system can't make the name of a file durable, and can create it
// once the system can.
func TestNameNotDurable(t *testing.T) {
	for name, do := range map[string]func(string, []byte, fs.FileMode) error{"create": CreateFile, "replace": ReplaceFile} {
		t.Run(name, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			path := filepath.Join(t.TempDir(), "a")
			failed := sandbox.FailLater(t, unix.SYS_FSYNC, unix.EIO, 1) // the first fsync is that of the file
			if err := do(path, []byte("one"), 0o600); !failed() || !errors.Is(err, unix.EIO) {
				t.Errorf("%v; refused: %v", err, failed())
			}
			if name == "create" {
				if err := CreateFile(path, []byte("one"), 0o600); err != nil {
					t.Errorf("created again: %v", err)
				}
			}
			is(t, path, "one", 0o600)
		})
	}
}

// TestReplaceShort: whichever call fails for lack of something, a file has its old content after an error, and the new
// one without, and always the same permissions.
func TestReplaceShort(t *testing.T) {
	for name, c := range map[string]struct {
		call  uint32
		errno unix.Errno
		made  int // calls to make the file
		calls int // to replace it
	}{"descriptors": {unix.SYS_OPENAT, unix.EMFILE, 2, 3}, "memory": {unix.SYS_NEWFSTATAT, unix.ENOMEM, 0, 4}} {
		for before := range c.calls {
			t.Run(fmt.Sprintf("%s after %d calls", name, before), func(t *testing.T) {
				if !sandbox.Inside(t) {
					return
				}
				failed := sandbox.FailLater(t, c.call, c.errno, c.made+before) // first, as it answers until the directory is gone
				t.Chdir(t.TempDir())
				const path = "a" // looking for links takes one call
				if err := errors.Join(os.WriteFile(path, []byte("old"), 0o600), os.Chmod(path, 0o640)); err != nil {
					t.Fatal(err)
				}
				want := "new"
				err := ReplaceFile(path, []byte("new"), 0o600)
				if err != nil {
					want = "old"
				}
				if !failed() || err != nil && !errors.Is(err, c.errno) {
					t.Errorf("%v; refused: %v", err, failed())
				}
				is(t, path, want, 0o640)
			})
		}
	}
}

// TestLockInterrupted: a signal that interrupts the locking of a directory doesn't keep it from being opened.
func TestLockInterrupted(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	failed := sandbox.FailOnce(t, unix.SYS_FLOCK, unix.EINTR)
	d, err := Open(t.TempDir())
	if err != nil || !failed() {
		t.Fatalf("opened: %v; interrupted: %v", err, failed())
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoLocks: on a file system without locks files are written all the same, and nothing is taken for abandoned; but a
// directory can't be opened, and the error doesn't blame another program.
func TestNoLocks(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	other, err := createBeside(path)
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	sandbox.Refuse(t, unix.SYS_FLOCK, unix.EOPNOTSUPP)
	if err := CreateFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(path, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(other.Name()); err != nil {
		t.Error(err)
	}
	is(t, path, "two", 0o600)
	if _, err := Open(dir); !errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, ErrInUse) {
		t.Error(err)
	}
}
