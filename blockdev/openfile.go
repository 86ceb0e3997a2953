package blockdev

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/statedir"
)

// OpenLocked opens, or creates with o.Size, the file or block device that holds a volume,
// and locks it. It returns its size, of which it only knows that it is not 0, and undo, which removes
// what it created, and empties again what was there, empty: who can't use the file calls it while it
// has the lock, or the next try finds it there. Errors are OpErrors and say what to do.
func OpenLocked(path string, o *Options) (f *os.File, size int64, undo func(), err error) {
	if err := o.Validate(); err != nil {
		return nil, 0, nil, OpenError(path, ErrInvalid, err)
	}
	f, created, err := openOrCreate(path, o)
	if err != nil {
		return nil, 0, nil, err
	}
	if err := lock(f, o.ReadOnly); err != nil {
		f.Close()
		return nil, 0, nil, err // it is another's volume by now
	}
	undo = func() {}
	if created {
		undo = func() { os.Remove(path) }
	}
	fail := func(err error) (*os.File, int64, func(), error) {
		undo()
		f.Close()
		return nil, 0, nil, err
	}
	if err := loopLock(f, o.ReadOnly); err != nil {
		return fail(err)
	}
	size, err = deviceSize(f)
	if err != nil {
		return fail(OpenError(path, KindOf(err), err))
	}
	switch {
	case size == 0 && o.Size > 0 && !o.ReadOnly:
		if !created {
			undo = func() { empty(f) }
		}
		if err := fill(f, o); err != nil {
			return fail(err)
		}
		return f, o.Size, undo, nil
	case size == 0:
		return fail(OpenError(path, ErrInvalid, errors.New("it is empty; give a size to create the volume")))
	case o.Size != 0 && o.Size != size:
		return fail(OpenError(path, ErrInvalid, fmt.Errorf(
			"it exists with %s, and %s was asked for; leave the size out to use it, or remove it first",
			FormatSize(size), FormatSize(o.Size))))
	}
	return f, size, undo, nil
}

// openOrCreate opens path, or creates it empty where it doesn't exist and a size was given.
func openOrCreate(path string, o *Options) (f *os.File, created bool, err error) {
	flag := os.O_RDWR
	if o.ReadOnly {
		flag = os.O_RDONLY
	}
	st, err := os.Stat(path)
	switch {
	case err == nil:
		if flag, err = flagsFor(st, flag); err != nil {
			return nil, false, OpenError(path, ErrInvalid, err)
		}
		f, err = os.OpenFile(path, flag, 0)
	case errors.Is(err, fs.ErrNotExist) && leadsNowhere(path) != "":
	case errors.Is(err, fs.ErrNotExist) && o.Size > 0 && !o.ReadOnly:
		f, err = os.OpenFile(path, flag|os.O_CREATE|os.O_EXCL, 0o600)
		created = err == nil
	}
	if err != nil {
		return nil, false, explainOpen(path, o, err)
	}
	return f, created, nil
}

// flagsFor checks the type of a file. A block device is opened with O_EXCL, which keeps out
// what the kernel does with it: mounts, RAID, swap.
func flagsFor(st fs.FileInfo, flag int) (int, error) {
	switch t := st.Mode().Type(); {
	case t == 0:
		return flag, nil
	case t&fs.ModeDir != 0:
		return 0, errors.New("it is a directory; name a file in it")
	case t&fs.ModeDevice != 0 && t&fs.ModeCharDevice == 0:
		return flag | os.O_EXCL, nil
	default:
		return 0, fmt.Errorf("it is neither a regular file nor a block device (%s)", t)
	}
}

// explainOpen adds to an error of open what to do about it.
func explainOpen(path string, o *Options, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	kind, hint := KindOf(err), ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = "give a size to create it"
		if o.ReadOnly {
			hint = "a volume that is read-only isn't created"
		}
		if _, e := os.Stat(filepath.Dir(path)); e != nil {
			hint = "its directory doesn't exist"
		}
		if to := leadsNowhere(path); to != "" {
			hint = "it is a symbolic link to " + to + "; create that file, or name it instead"
		}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		hint = "open it read-only, or change who may write it"
		if _, e := os.Stat(path); e != nil {
			hint = "create it in a directory that you may write"
		} else if o.ReadOnly {
			hint = "change who may read it"
		}
	case errors.Is(err, unix.EBUSY):
		hint = inUse(path)
	}
	if hint != "" {
		err = fmt.Errorf("%w: %s", err, hint)
	}
	return OpenError(path, kind, err)
}

// leadsNowhere is where a symbolic link leads that there is nothing behind; empty where path is none.
func leadsNowhere(path string) string {
	to, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return to
}

// inUse says who has a block device that can't be opened, with O_EXCL.
func inUse(path string) string {
	if f, err := os.Open(path); err == nil {
		defer f.Close()
		if by := holder(f); by != "" {
			return locked(by)
		}
	}
	return "it is mounted or otherwise in use by the system"
}

// deviceSize is the size of a regular file or block device; of the latter stat knows none.
func deviceSize(f *os.File) (int64, error) {
	return f.Seek(0, io.SeekEnd)
}

// empty takes back what fill did, in part or whole. A part of the space may be reserved.
func empty(f *os.File) {
	_ = retry(func() error { return unix.Ftruncate(int(f.Fd()), 0) })
}

// fill gives an empty file its size, and makes that it exists durable.
func fill(f *os.File, o *Options) error {
	err := CheckSize(o.Size, o.BlockSizeOr(DefaultBlockSize))
	if err != nil {
		return OpenError(f.Name(), ErrInvalid, err)
	}
	fd := int(f.Fd())
	if o.Preallocate {
		err = reserve(fd, o.Size)
	}
	if err == nil {
		err = retry(func() error { return unix.Ftruncate(fd, o.Size) })
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = statedir.SyncDir(filepath.Dir(f.Name()))
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("the file system can't preallocate: %w; create the volume sparse", err)
	}
	return &OpError{Op: "create", Path: f.Name(), Offset: -1, Kind: KindOf(err),
		Err: fmt.Errorf("with %s: %w", FormatSize(o.Size), err)}
}

// reserve gives an empty file the space for size bytes, and leaves it empty: what a power failure cuts short is filled by
// the next who opens it, where a file of another size would be refused as not ours. Some file systems can't do that, as
// NFS, and reserve space only as they make a file longer.
func reserve(fd int, size int64) error {
	err := retry(func() error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = retry(func() error { return unix.Fallocate(fd, 0, 0, size) })
	}
	return err
}
