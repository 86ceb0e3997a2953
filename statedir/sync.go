package statedir

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// SyncDir makes the names in a directory durable. File systems that can't sync a directory return EINVAL, which is not
// treated as an error.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncNames(d)
}

// syncNames is SyncDir for an open directory.
func syncNames(dir *os.File) error {
	if err := dir.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// syncReadable is SyncDir if the program may read the directory; if it may not, what is in it was made by somebody who
// may.
func syncReadable(path string) error {
	err := SyncDir(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
