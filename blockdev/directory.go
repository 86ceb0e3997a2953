package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nvme-anywhere/nvmeof/statedir"
)

// Directory makes volumes of files in a directory. Files that it didn't make it leaves alone.
// Its methods may be called from any goroutine, for one volume from one at a time.
type Directory struct {
	path     string
	capacity uint64
	options  Options
	lock     *os.File
}

// directorySuffix is that of the files.
const directorySuffix = ".volume"

// OpenDirectory opens a directory, which it creates where it isn't there, for volumes of capacity
// bytes together. options has what all of them have in common. An error that is ErrBusy says that
// somebody has it open.
func OpenDirectory(path string, capacity uint64, options Options) (*Directory, error) {
	if err := statedir.MakeDir(path); err != nil {
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

// Close gives the directory up. Its volumes are closed by whoever has them.
func (d *Directory) Close() error { return d.lock.Close() }

// Capacity is how much all volumes together may take, in bytes.
func (d *Directory) Capacity() uint64 { return d.capacity }

func (d *Directory) file(name string) (string, error) {
	path := filepath.Join(d.path, name+directorySuffix)
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

// Create makes a volume that reads as zeroes and is there after a power failure.
func (d *Directory) Create(name string, size int64, blockSize int) (Volume, error) {
	path, err := d.file(name)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, OpenError(path, ErrInvalid, errors.Join(fs.ErrExist, err))
	}
	return OpenFile(path, d.optionsFor(size, blockSize))
}

// Open opens a volume that was created.
func (d *Directory) Open(name string, size int64, blockSize int) (Volume, error) {
	path, err := d.file(name)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil { // OpenFile would create it
		return nil, OpenError(path, KindOf(err), err)
	}
	return OpenFile(path, d.optionsFor(size, blockSize))
}

// Remove forgets a volume, which is closed. An error that is fs.ErrNotExist says that it isn't there.
func (d *Directory) Remove(name string) error {
	path, err := d.file(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return statedir.SyncDir(d.path)
}
