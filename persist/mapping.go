package persist

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// mapping is a file mapped into memory.
type mapping struct {
	file *os.File
	mem  []byte
	more atomic.Pointer[[]piece] // what the file has grown by since it was mapped
	dax  bool                    // mapped with MAP_SYNC: the lines of mem are the medium
	fs   string                  // the file system's name, for people
	ram  bool                    // it lies in the machine's ordinary memory

	below blockdev.Below // of file
}

// piece is memory of a mapping, beginning at a byte of the file.
type piece struct {
	mem []byte
	off int64
}

// mapFile maps size bytes of f, with MAP_SYNC if that is supported.
func mapFile(f *os.File, size int64, readOnly bool) (*mapping, error) {
	if int64(int(size)) != size {
		return nil, fmt.Errorf("%d bytes are more than this processor can map", size)
	}
	m := &mapping{file: f, below: blockdev.BelowFile(f)}
	m.fs, m.ram = fileSystem(f)
	var err error
	m.mem, m.dax, err = mapRange(f, 0, size, readOnly)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// mapKind returns the kind of an error of mapFile or resize. ENOMEM is ErrCapacity: there won't be more addresses later.
func mapKind(err error) error {
	if errors.Is(err, unix.ENOMEM) {
		return blockdev.ErrCapacity
	}
	return blockdev.KindOf(err)
}

// mapRange maps n bytes of f from off on, a multiple of the page; dax says whether with MAP_SYNC.
func mapRange(f *os.File, off, n int64, readOnly bool) (mem []byte, dax bool, err error) {
	prot := unix.PROT_READ | unix.PROT_WRITE
	if readOnly {
		prot = unix.PROT_READ
	}
	fd := int(f.Fd())
	mem, err = unix.Mmap(fd, off, int(n), prot, unix.MAP_SHARED_VALIDATE|unix.MAP_SYNC)
	if err == nil {
		return mem, true, nil
	}
	// EOPNOTSUPP: not on DAX. EINVAL: a kernel before 4.15, or a file that can't be mapped, which the second attempt
	// shows.
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
		return nil, false, fmt.Errorf("mapping: %w", err)
	}
	if mem, err = unix.Mmap(fd, off, int(n), prot, unix.MAP_SHARED); err != nil {
		return nil, false, fmt.Errorf("mapping: %w", err)
	}
	return mem, false, nil
}

// extend maps what the file has grown by, from byte off on.
func (m *mapping) extend(off, n int64) ([]byte, error) {
	mem, dax, err := mapRange(m.file, off, n, false)
	if err != nil {
		return nil, err
	}
	if dax != m.dax {
		return nil, errors.Join(errors.New("the file changed between DAX and the page cache"), unix.Munmap(mem))
	}
	var all []piece
	if old := m.more.Load(); old != nil {
		all = append(all, *old...)
	}
	all = append(all, piece{mem, off})
	m.more.Store(&all)
	return mem, nil
}

// drop undoes an extend that failed later, or that wasn't needed.
func (m *mapping) drop(mem []byte) error {
	more := m.more.Load()
	if more == nil {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(*more), func(p piece) bool { return &p.mem[0] == &mem[0] })
	if len(rest) == len(*more) {
		return nil // a part of the first mapping
	}
	m.more.Store(&rest)
	return unix.Munmap(mem)
}

// cached reports whether a page cache lies between the mapping and durable storage.
func (m *mapping) cached() bool { return !m.dax && !m.ram }

// resize changes the size of the file, of which nothing is in use yet.
func (m *mapping) resize(size int64, preallocate bool) (err error) {
	if preallocate {
		err = m.allocate(0, 0, size)
	} else {
		err = retry("ftruncate", func() error { return unix.Ftruncate(int(m.file.Fd()), size) })
	}
	if err != nil {
		return err
	}
	mem, _, err := mapRange(m.file, 0, size, false)
	if err != nil {
		return err
	}
	m.mem, mem = mem, m.mem
	return unix.Munmap(mem)
}

// fileSize returns the current length of the file.
func (m *mapping) fileSize() (size int64, err error) {
	err = retry("lseek", func() (err error) { size, err = unix.Seek(int(m.file.Fd()), 0, io.SeekEnd); return err })
	return size, err
}

// where returns the byte of the file at an address; false if that isn't in the mapping.
func (m *mapping) where(addr uintptr) (off int64, ok bool) {
	all := []piece{{m.mem, 0}}
	if more := m.more.Load(); more != nil {
		all = append(all, *more...)
	}
	for _, p := range all {
		if at := addr - uintptr(unsafe.Pointer(unsafe.SliceData(p.mem))); at < uintptr(len(p.mem)) {
			return p.off + int64(at), true
		}
	}
	return 0, false
}

const hugetlbfs = "hugetlbfs"

// fileSystem returns the name of the file system that f is on.
func fileSystem(f *os.File) (name string, ram bool) {
	if st, err := f.Stat(); err == nil && !st.Mode().IsRegular() {
		return "block device", false
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return "file system", false
	}
	switch fs.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4", false
	case unix.XFS_SUPER_MAGIC:
		return "XFS", false
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs", false
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs", false
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return "tmpfs", true
	case unix.HUGETLBFS_MAGIC:
		return hugetlbfs, true
	}
	return "file system", false
}

// sync makes the whole mapping durable, by the kernel's record of dirty pages.
func (m *mapping) sync() error { return syncBytes(m.mem) }

// syncBytes makes b, a piece of the mapping, durable.
func syncBytes(b []byte) error {
	// The start of the page that b begins in is mapped, too.
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	before := at & uintptr(os.Getpagesize()-1)
	from := (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), -int(before)))
	return retry("msync", func() error { return unix.Msync(unsafe.Slice(from, int(before)+len(b)), unix.MS_SYNC) })
}

// syncFile makes the file's data durable, and the metadata needed to find it.
func (m *mapping) syncFile() error {
	if m.file == nil {
		return nil
	}
	return retry("fdatasync", func() error { return unix.Fdatasync(int(m.file.Fd())) })
}

// punch gives the space of a range back to the file system; it then reads as zeroes.
func (m *mapping) punch(off, n int64) error {
	return m.allocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

// allocate is fallocate.
func (m *mapping) allocate(mode uint32, off, n int64) error {
	return retry("fallocate", func() error { return unix.Fallocate(int(m.file.Fd()), mode, off, n) })
}

// retry makes a system call until it isn't interrupted by a signal: the Go runtime sends itself signals, and not every
// file system (FUSE, NFS) restarts what they interrupt. An error names the call.
func retry(call string, fn func() error) error {
	for {
		if err := fn(); !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError(call, err)
		}
	}
}

// keepsPages reports whether a file is better left without holes. A huge page that a hole gives back isn't reserved for
// the mapping any more, and may be gone when it is needed again; and before Linux 5.19 a hole leaves alone the pages of
// which it covers a part.
func (m *mapping) keepsPages() bool { return m.fs == hugetlbfs }

// clear zeroes a range: by a hole if the file system supports that, but in a file without holes by the file system's
// zeroes, which keep their space.
func (m *mapping) clear(b []byte, off int64) (err error) {
	if m.file != nil && !m.keepsPages() {
		mode := uint32(unix.FALLOC_FL_PUNCH_HOLE)
		if m.reserved() {
			mode = unix.FALLOC_FL_ZERO_RANGE
		}
		if m.allocate(mode|unix.FALLOC_FL_KEEP_SIZE, off, int64(len(b))) == nil {
			return nil
		}
	}
	defer m.caught(&err, debug.SetPanicOnFault(true))
	clear(b)
	return nil
}

// reserved reports whether all space of a regular file is allocated.
func (m *mapping) reserved() bool {
	var st unix.Stat_t
	return unix.Fstat(int(m.file.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Blocks*512 >= st.Size
}

func (m *mapping) close() error {
	err := unix.Munmap(m.mem)
	if more := m.more.Load(); more != nil {
		for _, p := range *more {
			err = errors.Join(err, unix.Munmap(p.mem))
		}
	}
	if m.file == nil {
		return err
	}
	return errors.Join(err, m.file.Close())
}
