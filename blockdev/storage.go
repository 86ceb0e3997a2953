package blockdev

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// storage is the interface of an open file volume to the system, except for what never blocks: the kernel's queue, and
// reads of what the page cache has. Errors are those of the system.
type storage interface {
	// transfer reads or writes as much of iov as it can at off; flags are RWF_*.
	transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error)
	// sync makes earlier transfers durable.
	sync() error
	// allocate is fallocate.
	allocate(mode uint32, off, n int64) error
	// discard is BLKDISCARD, for a block device.
	discard(off, n int64) error
	close() error
}

// kernel is the storage provided by Linux. With direct I/O, transfers use an open file of their own. The system reports
// a failed write-back once per open file, and a write with RWF_DSYNC must not take that report away from a flush. And
// only for the file that has a device exclusively (O_EXCL) does it zero or discard a range that others have written to
// in the page cache; for another one that fails with EBUSY.
type kernel struct {
	locked   *os.File // holds the lock, and a device exclusively; goes through the page cache
	io       *os.File // locked, or the file reopened for direct I/O
	lockedFD int
	ioFD     int
}

func newKernel(locked, io *os.File) *kernel {
	return &kernel{locked: locked, io: io, lockedFD: int(locked.Fd()), ioFD: int(io.Fd())}
}

func (k *kernel) transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error) {
	return vectored(op, k.ioFD, iov, off, flags)
}

func (k *kernel) sync() error {
	return retry(func() error { return unix.Fdatasync(k.lockedFD) })
}

func (k *kernel) allocate(mode uint32, off, n int64) error {
	return retry(func() error { return unix.Fallocate(k.lockedFD, mode, off, n) })
}

func (k *kernel) discard(off, n int64) error {
	span := [2]uint64{uint64(off), uint64(n)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(k.lockedFD), unix.BLKDISCARD, uintptr(unsafe.Pointer(&span)))
	if errno != 0 {
		return errno
	}
	return nil
}

func (k *kernel) close() error {
	var err error
	if k.io != k.locked {
		err = k.io.Close()
	}
	return errors.Join(err, k.locked.Close())
}
