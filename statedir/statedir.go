package statedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// ErrInUse means that another program uses the directory.
var ErrInUse = errors.New("state directory in use")

// Dir is a directory of state.
type Dir struct {
	path string
	dir  *os.File    // locked
	at   fs.FileInfo // of dir

	mu sync.Mutex // one change at a time, and none after Close
}

// suffix ends the names of files that hold state; unfinished is added to that of one being written.
const (
	suffix     = ".state"
	unfinished = ".new"
)

// Open opens a directory, which it creates if it doesn't exist, and removes what Saves left that were cut short by a
// crash. If nothing can be saved in the directory, it returns an error.
func Open(path string) (*Dir, error) {
	if err := MakeDir(path, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return nil, fmt.Errorf("state directory: %w", &fs.PathError{Op: "write to", Path: path, Err: err})
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	at, err := dir.Stat()
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("state directory: %w", err)
	}
	d := &Dir{path: path, dir: dir, at: at}
	if err := flock(dir); err != nil {
		dir.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s: another program has it open", ErrInUse, path)
		}
		return nil, fmt.Errorf("state directory %s: lock: %w", path, err)
	}
	left, err := filepath.Glob(filepath.Join(escape(path), "*"+suffix+unfinished))
	for _, f := range left {
		err = errors.Join(err, os.Remove(f))
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return d, nil
}

// MakeDir creates a directory if it doesn't exist, like os.MkdirAll. When it returns without an error, the directory
// survives a power failure.
func MakeDir(path string, mode fs.FileMode) error { return create(path, mode, syncReadable) }

// create creates a directory and any missing parents, and makes their names durable with sync. It does so for the
// directory's own name even if it exists, since its creator may have been killed before doing so.
func create(path string, mode fs.FileMode, sync func(dir string) error) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	parents := []string{filepath.Dir(path)}
	for p := parents[0]; ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		parents = append(parents, filepath.Dir(p))
	}
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	for _, p := range parents {
		if err := sync(p); err != nil {
			return err
		}
	}
	return nil
}

// escape escapes a path so that it matches itself as a pattern.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// Close releases the directory, after the Save or Delete that is under way. After that, every method fails with an error
// that matches fs.ErrClosed.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dir.Close()
}

// errMoved means that the path leads to another directory, or none. That one isn't locked, what is in it isn't what was
// saved, and a Save would make the names of the other one durable.
var errMoved = errors.New("it isn't where it was any more: put it back, or start the program again")

// file returns the path of the file for a name. It fails after Close, when another program may have the directory, and
// where the directory isn't at its path any more.
func (d *Dir) file(name string) (string, error) {
	if _, err := d.dir.Stat(); err != nil {
		return "", fmt.Errorf("state directory: %w", err)
	}
	now, err := os.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, d.at) {
		err = errMoved
	}
	if err != nil {
		return "", fmt.Errorf("state directory %s: %w", d.path, err)
	}
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return "", fmt.Errorf("state directory %s: %q can't be the name of a file", d.path, name)
	}
	return filepath.Join(d.path, name+suffix), nil
}

// Load returns what was last saved under a name, or nil if nothing was. Meanwhile it waits for the disk.
func (d *Dir) Load(name string) (data []byte, err error) {
	aio.Apart(func() {
		var path string
		if path, err = d.file(name); err == nil {
			data, err = read(path)
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

var errNotRegular = errors.New("it is not a regular file: remove it")

// read reads a file. A pipe nobody may ever write to, and a device may have no end.
func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	return io.ReadAll(f)
}

// Save replaces what is saved under a name. When it returns without an error, the new content survives a power failure;
// after an error the old content is there, also for the next Open. If the names couldn't be made durable, it had to be
// put back, and which of the two survives a power failure isn't known.
func (d *Dir) Save(name string, data []byte) error {
	return d.change(name, func(path string) error { return replace(path, data) })
}

// Delete deletes what is saved under a name, if there is anything, in the same way.
func (d *Dir) Delete(name string) error { return d.change(name, remove) }

// change has f change a file, and makes that durable, or undoes it. Meanwhile it waits for the disk.
func (d *Dir) change(name string, f func(path string) error) (err error) {
	aio.Apart(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		err = d.changeFile(name, f)
	})
	return err
}

// changeFile does the work of change. A second name keeps the old file, to undo it: a system that can't make names
// durable most likely can't write a file durably, either.
func (d *Dir) changeFile(name string, f func(path string) error) error {
	path, err := d.file(name)
	if err != nil {
		return err
	}
	kept := filepath.Join(d.path, "."+name+suffix+unfinished) // nothing is saved under such a name
	defer os.Remove(kept)                                     // if it is still there; if that fails the next Open does it
	undo := func() error { return os.Rename(kept, path) }
	switch err := keep(path, kept); {
	case errors.Is(err, fs.ErrNotExist):
		undo = func() error { return remove(path) }
	case err != nil:
		return err
	}
	if err := f(path); err != nil {
		return err
	}
	if err = syncNames(d.dir); err == nil {
		return nil
	}
	err = errors.Join(err, undo())
	_ = syncNames(d.dir) // it may work again; otherwise err already says that it doesn't
	return fmt.Errorf("state directory %s: %w", d.path, err)
}

// keep gives a file a second name, or where files have only one, makes a copy.
func keep(path, kept string) error {
	if err := remove(kept); err != nil {
		return err
	}
	if err := os.Link(path, kept); err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b, err := read(path)
	if err != nil {
		return err
	}
	return write(kept, b)
}

// replace gives a file new content, which is durable before the file has it. After an error it has the old one.
func replace(path string, data []byte) error {
	err := write(path+unfinished, data)
	if err == nil {
		err = os.Rename(path+unfinished, path)
	}
	if err != nil {
		_ = os.Remove(path + unfinished) // it may not exist; otherwise the next Open removes it
	}
	return err
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func write(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
