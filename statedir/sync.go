package statedir

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// SyncDir makes the names in a directory durable. File systems that can't sync a directory say EINVAL,
// which is no error here.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncNames(d)
}

// syncNames is SyncDir of a directory that is open.
func syncNames(dir *os.File) error {
	if err := dir.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// syncReadable is SyncDir where one may read the directory; otherwise whoever may has made what is in it.
func syncReadable(path string) error {
	err := SyncDir(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
