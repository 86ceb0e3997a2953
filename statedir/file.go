package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// CreateFile makes a file that isn't there yet. It appears with all of data or not at all, and when CreateFile
// returns without an error it survives a power failure.
func CreateFile(path string, data []byte, mode fs.FileMode) error {
	return place(path, data, mode, nil, os.Link) // unlike rename, replaces nothing
}

// ReplaceFile gives a file new content, in the same way. It keeps its permissions, and its owner and group where the
// program may give it away; one that wasn't there gets mode. A symbolic link stays, and the file that it leads to is
// replaced.
func ReplaceFile(path string, data []byte, mode fs.FileMode) error {
	switch file, err := filepath.EvalSymlinks(path); {
	case err == nil:
		path = file
	case !missing(path):
		return err // of a link that leads nowhere, as a rule
	}
	var owner *syscall.Stat_t
	if was, err := os.Stat(path); err == nil {
		mode = was.Mode().Perm()
		owner, _ = was.Sys().(*syscall.Stat_t)
	}
	return place(path, data, mode, owner, os.Rename)
}

// missing tells whether there is nothing of a name, no link either.
func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// place makes a file beside path, as far as it can one of owner's, and has name give it that name.
func place(path string, data []byte, mode fs.FileMode, owner *syscall.Stat_t, name func(from, to string) error) error {
	removeAbandoned(path)
	f, err := createBeside(path)
	if err != nil {
		return err
	}
	defer f.Close()           // when it has its name, or none any more
	defer os.Remove(f.Name()) // nothing is there any more where it was renamed
	if owner != nil {
		_ = f.Chown(int(owner.Uid), int(owner.Gid)) // only root may give it to anybody
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Sync()); err != nil {
		return err
	}
	if err := name(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// createBeside makes a file that is to become path, which only its owner may read, and locks it lest somebody take it for
// abandoned.
func createBeside(path string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*"+unfinished)
		if err != nil || lockNamed(f) {
			return f, err
		}
		f.Close() // somebody has, before it was locked
	}
}

// removeAbandoned removes what was to become path, and whose writer was killed: nobody has it locked.
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

// lockNamed locks a new file. It returns false where somebody took it for abandoned. A file system without locks is none
// from which anybody removes anything.
func lockNamed(f *os.File) bool {
	if err := flock(f); err != nil {
		return !errors.Is(err, unix.EWOULDBLOCK)
	}
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) != nil || st.Nlink > 0
}

func flock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
