package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
	"github.com/nvme-anywhere/nvmeof/statedir"
)

// Directory makes volumes of files in a directory. It leaves files alone that it didn't make. Its methods may be called
// from any goroutine, but for one volume by only one at a time.
type Directory struct {
	path     string
	capacity uint64
	options  Options
	lock     *os.File
}

// directorySuffix is the suffix of the files' names.
const directorySuffix = ".volume"

// OpenDirectory opens a directory, or creates it if it doesn't exist, for volumes of capacity bytes together. options
// holds the options that all of them share. An error that is ErrBusy says that the directory is already open.
func OpenDirectory(path string, capacity uint64, options Options) (*Directory, error) {
	if err := statedir.MakeDir(path, 0o700); err != nil {
		return nil, OpenError(path, KindOf(err), err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, OpenError(path, KindOf(err), err)
	}
	if err := lock(f, false); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Directory{path: path, capacity: capacity, options: options, lock: f}, nil
}

// Close releases the directory: its methods fail after that. Its volumes are closed by their users.
func (d *Directory) Close() error { return d.lock.Close() }

// Capacity returns how much all volumes together may take, in bytes.
func (d *Directory) Capacity() uint64 { return d.capacity }

// errDirectoryMoved means that the path leads to another directory, or none. That one isn't locked, and the volumes
// aren't in it, which doesn't mean that they were removed.
var errDirectoryMoved = errors.New("the directory isn't where it was any more: put it back, or start the program again")

// moved returns an error unless the directory is where it was.
func (d *Directory) moved() error {
	here, err := d.lock.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(here, there) {
		return errDirectoryMoved
	}
	return err
}

// file returns the path of a volume's file. It fails after Close, when another program may have the directory, and
// where the directory isn't at its path any more.
func (d *Directory) file(name string) (string, error) {
	path := filepath.Join(d.path, name+directorySuffix)
	var err error
	aio.Apart(func() {
		err = d.moved()
	})
	switch {
	case errors.Is(err, errDirectoryMoved), errors.Is(err, os.ErrClosed):
		return "", OpenError(path, ErrGone, err)
	case err != nil:
		return "", OpenError(path, KindOf(err), err)
	}
	if name == "" || filepath.Dir(path) != filepath.Clean(d.path) {
		return "", OpenError(path, ErrInvalid, fmt.Errorf("%q can't be the name of a volume", name))
	}
	return path, nil
}

func (d *Directory) optionsFor(size int64, blockSize int) Options {
	o := d.options
	o.Size, o.BlockSize = size, blockSize
	return o
}

// Create makes a volume that reads as zeroes and that survives a power failure.
func (d *Directory) Create(name string, size int64, blockSize int) (Volume, error) {
	path, err := d.file(name)
	if err != nil {
		return nil, err
	}
	if aio.Apart(func() { _, err = os.Lstat(path) }); !errors.Is(err, fs.ErrNotExist) {
		return nil, OpenError(path, ErrInvalid, errors.Join(fs.ErrExist, err))
	}
	return OpenFile(path, d.optionsFor(size, blockSize))
}

// Open opens an existing volume.
func (d *Directory) Open(name string, size int64, blockSize int) (Volume, error) {
	path, err := d.file(name)
	if err != nil {
		return nil, err
	}
	if aio.Apart(func() { _, err = os.Stat(path) }); err != nil { // OpenFile would create it
		return nil, OpenError(path, KindOf(err), err)
	}
	return OpenFile(path, d.optionsFor(size, blockSize))
}

// Remove deletes a closed volume. An error that is fs.ErrNotExist says that there is none.
func (d *Directory) Remove(name string) error {
	path, err := d.file(name)
	if err != nil {
		return err
	}
	aio.Apart(func() {
		if err = os.Remove(path); err == nil { // which takes long if the file is large
			err = statedir.SyncDir(d.path)
		}
	})
	return err
}
