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

// OpenLocked opens, or creates with o.Size, the file or block device that holds a volume, and locks it. It returns the
// file's size, of which it only checks that it isn't 0, and undo, which removes a file that it created, and truncates
// to empty one that was there but empty. A caller that can't use the file calls undo while it still holds the lock;
// otherwise the next attempt finds the file there. Errors are OpErrors and say what to do.
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
		return nil, 0, nil, err // by now it is another program's volume
	}
	undo = func() {}
	if created {
		undo = func() { os.Remove(path) }
		if o.Created != nil {
			*o.Created = true
		}
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

// openOrCreate opens path, or creates it empty if it doesn't exist and a size was given.
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
		if errors.Is(err, fs.ErrExist) {
			return openOrCreate(path, o) // somebody has created it just now, and most likely holds its lock
		}
		created = err == nil
	}
	if err != nil {
		return nil, false, explainOpen(path, o, err)
	}
	return f, created, nil
}

// flagsFor checks the type of a file. A block device is opened with O_EXCL, which excludes the kernel's own uses of it:
// mounts, RAID, swap.
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

// explainOpen adds advice to an error of open.
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

// leadsNowhere returns the target of a dangling symbolic link; empty if path is not a link.
func leadsNowhere(path string) string {
	to, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return to
}

// inUse says who uses a block device that can't be opened with O_EXCL.
func inUse(path string) string {
	if f, err := os.Open(path); err == nil {
		defer f.Close()
		if by := holder(f); by != "" {
			return locked(by)
		}
	}
	return "it is mounted or otherwise in use by the system"
}

// deviceSize returns the size of a regular file or block device; for the latter, stat doesn't know it.
func deviceSize(f *os.File) (size int64, err error) {
	err = retry(func() (err error) { size, err = f.Seek(0, io.SeekEnd); return err })
	return size, err
}

// CheckName returns an error if f, the file of the volume that info describes, was removed, or another file has its
// name now. Hosts don't notice, until the volume is opened again. A file that was only renamed is found missing then. A
// device is there without its node. If something else is wrong with the volume, other, the error says both.
func CheckName(f *os.File, info *Info, other error) error {
	err := checkName(f, info)
	switch {
	case other == nil:
		return err
	case err == nil:
		return other
	}
	return fmt.Errorf("%w; %w", other, err)
}

func checkName(f *os.File, info *Info) error {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(int(f.Fd()), &st) }); err != nil {
		return info.Failed("refresh", KindOf(err), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	// A path may lead to a file without a link: through /proc/self/fd, or where the file system counts none.
	switch there, same := leadsTo(info.Path, f); {
	case same:
	case st.Nlink == 0:
		return info.Failed("refresh", ErrInvalid, errNoName)
	case there:
		return info.Failed("refresh", ErrInvalid, errOtherName)
	}
	return nil
}

// leadsTo reports whether there is a file at path, and whether it is f.
func leadsTo(path string, f *os.File) (there, same bool) {
	one, err := f.Stat()
	if err != nil {
		return false, false
	}
	two, err := os.Stat(path)
	return err == nil, err == nil && os.SameFile(one, two)
}

var (
	errNoName    = errors.New("the file was removed or replaced: what hosts have in it is lost when the volume is closed")
	errOtherName = errors.New("the file was moved, and another has its name: hosts use the moved one until the volume is closed, and then the other")
)

// empty undoes what fill did, partly or completely. Some of the space may stay reserved.
func empty(f *os.File) {
	_ = retry(func() error { return unix.Ftruncate(int(f.Fd()), 0) })
}

// fill gives an empty file its size, and makes its existence durable.
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
	switch n := hugePage(f); {
	case errors.Is(err, unix.EOPNOTSUPP):
		err = fmt.Errorf("the file system can't preallocate: %w; create the volume sparse", err)
	case errors.Is(err, unix.EINVAL) && n > 0:
		err = fmt.Errorf("%w: a file in huge pages, which can only be mapped, as pmem:, has a multiple of %s: make one with truncate, and `nvmetgt pmem format` it", err, FormatSize(n))
	}
	return &OpError{Op: "create", Path: f.Name(), Offset: -1, Kind: KindOf(err),
		Err: fmt.Errorf("with %s: %w", FormatSize(o.Size), err)}
}

// hugePage returns the size of the pages of a file on hugetlbfs; 0 for any other file.
func hugePage(f *os.File) int64 {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil || fs.Type != unix.HUGETLBFS_MAGIC {
		return 0
	}
	return fs.Bsize
}

// reserve reserves space for size bytes in an empty file without changing its length: if a power failure interrupts
// creation, the next open fills the still empty file, whereas a file of another size would be refused as not ours. Some
// file systems, such as NFS, can't do that, and reserve space only while they extend a file.
func reserve(fd int, size int64) error {
	err := retry(func() error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = retry(func() error { return unix.Fallocate(fd, 0, 0, size) })
	}
	return err
}
