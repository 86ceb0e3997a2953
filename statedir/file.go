package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// CreateFile creates a file that must not exist yet. It appears with all of data or not at all, and when CreateFile
// returns without an error it survives a power failure. After an error it isn't there, if the
// disk permits, so that the caller can try again.
func CreateFile(path string, data []byte, mode fs.FileMode) error {
	named, err := place(path, data, mode, nil, os.Link) // os.Link, unlike os.Rename, never replaces a file
	if named && err != nil {
		aio.Apart(func() { err = errors.Join(err, os.Remove(path)) })
	}
	return err
}

// ReplaceFile replaces the content of a file, in the same way; only after an error of the disk it may have the new
// content, too. The file keeps its permissions, and its owner and group if the program may set them; a new file gets
// mode. A symbolic link stays, and the file that it points to is replaced.
func ReplaceFile(path string, data []byte, mode fs.FileMode) error {
	switch file, err := filepath.EvalSymlinks(path); {
	case err == nil:
		path = file
	case !missing(path):
		return err // usually of a dangling link
	}
	var owner *syscall.Stat_t
	switch was, err := os.Stat(path); {
	case err == nil:
		mode = was.Mode().Perm()
		owner, _ = was.Sys().(*syscall.Stat_t)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	_, err := place(path, data, mode, owner, os.Rename)
	return err
}

// missing reports whether a name doesn't exist, not even as a link.
func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// place creates a file next to path, if possible with the given owner, and calls name to give it its final name; named
// says whether it has that. Meanwhile it waits for the disk.
func place(path string, data []byte, mode fs.FileMode, owner *syscall.Stat_t, name func(from, to string) error) (named bool, err error) {
	aio.Apart(func() { named, err = placeHere(path, data, mode, owner, name) })
	return named, err
}

func placeHere(path string, data []byte, mode fs.FileMode, owner *syscall.Stat_t, name func(from, to string) error) (named bool, err error) {
	dir, err := os.Open(filepath.Dir(path)) // first: later it may fail, and leave what is done in doubt
	if err != nil {
		return false, err
	}
	defer dir.Close()
	removeAbandoned(path)
	f, err := createBeside(path)
	if err != nil {
		return false, err
	}
	defer f.Close()           // after the file has its name, or none any more
	defer os.Remove(f.Name()) // if it was renamed, nothing is there any more
	// Only root may give a file to anybody; others may give it to a group that they are in.
	if owner != nil && f.Chown(int(owner.Uid), int(owner.Gid)) != nil {
		_ = f.Chown(-1, int(owner.Gid))
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Sync()); err != nil {
		return false, err
	}
	if err := name(f.Name(), path); err != nil {
		return false, err
	}
	return true, syncNames(dir)
}

// createBeside creates a file that is to become path, which only its owner may read, and locks it, so that nobody takes
// it for abandoned.
func createBeside(path string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*"+unfinished)
		if err != nil || lockNamed(f) {
			return f, err
		}
		f.Close() // somebody did, before it was locked
	}
}

// removeAbandoned removes files that were to become path and whose writers were killed: nobody holds their locks.
func removeAbandoned(path string) {
	dir, base := filepath.Split(path)
	left, _ := filepath.Glob(escape(dir) + "." + escape(base) + ".*" + unfinished)
	for _, name := range left {
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if err := flock(f); err == nil {
			_ = os.Remove(name)
		}
		f.Close()
	}
}

// lockNamed locks a new file. It returns false if somebody took the file for abandoned. On a file system without locks
// nobody removes anything.
func lockNamed(f *os.File) bool {
	if err := flock(f); err != nil {
		return !errors.Is(err, unix.EWOULDBLOCK)
	}
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) != nil || st.Nlink > 0
}

// flock locks a file, unless somebody else has locked it. Not every file system calls again what a signal interrupts.
func flock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
