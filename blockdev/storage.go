package blockdev

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// storage is what a file volume asks of the system, and all that it asks of it once it is
// open. Errors are those of the system.
type storage interface {
	// transfer reads or writes what it can of iov at off; flags are RWF_*.
	transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error)
	// sync makes durable what was transferred before.
	sync() error
	// allocate is fallocate.
	allocate(mode uint32, off, n int64) error
	// discard is BLKDISCARD, of a block device.
	discard(off, n int64) error
	close() error
}

// kernel is the storage that Linux gives. Transfers and syncs have an open file each where
// transfers are direct: the system tells of a failed write-back once on each open file, and
// a write with RWF_DSYNC must not take that away from a flush.
type kernel struct {
	locked *os.File // holds the lock; the page cache's way to the data
	io     *os.File // locked, or the file opened again for direct I/O
	fd     int      // of io
	syncFD int      // of locked
}

func newKernel(locked, io *os.File) *kernel {
	return &kernel{locked: locked, io: io, fd: int(io.Fd()), syncFD: int(locked.Fd())}
}

func (k *kernel) transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error) {
	return vectored(op, k.fd, iov, off, flags)
}

func (k *kernel) sync() error {
	return retry(func() error { return unix.Fdatasync(k.syncFD) })
}

func (k *kernel) allocate(mode uint32, off, n int64) error {
	return retry(func() error { return unix.Fallocate(k.fd, mode, off, n) })
}

func (k *kernel) discard(off, n int64) error {
	span := [2]uint64{uint64(off), uint64(n)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(k.fd), unix.BLKDISCARD, uintptr(unsafe.Pointer(&span)))
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
