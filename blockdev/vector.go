package blockdev

import (
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// iovecs has room for one vectored call; longer lists take several.
type iovecs [128]unix.Iovec

// nowIovecs is the same for what no worker does: it lies on the stack, or in a slot of the queue.
type nowIovecs [16]unix.Iovec

// fillIovecs fills iov with the rest of r from r.done on, as many of its buffers as fit, but no partial block: that
// would be read, or written, in two steps. It returns 0 if a block has more buffers than fit.
func (v *file) fillIovecs(iov []unix.Iovec, r *Request) int {
	n, skip, end := 0, r.done, r.done
	for _, b := range r.Bufs {
		if skip >= int64(len(b)) {
			skip -= int64(len(b))
			continue
		}
		if n == len(iov) {
			return cutIovecs(iov, end&int64(v.info.BlockSize-1))
		}
		iov[n].Base = &b[skip]
		iov[n].SetLen(len(b) - int(skip))
		end += int64(len(b)) - skip
		skip = 0
		n++
	}
	return n
}

// cutIovecs cuts the given number of bytes off the end of iov, and returns how many entries are left.
func cutIovecs(iov []unix.Iovec, bytes int64) (n int) {
	for n = len(iov); n > 0 && int64(iov[n-1].Len) <= bytes; n-- {
		bytes -= int64(iov[n-1].Len)
	}
	if n > 0 {
		iov[n-1].SetLen(int(int64(iov[n-1].Len) - bytes))
	}
	return n
}

// vectored is preadv2 or pwritev2, without the allocations of package unix. A read at the end of the file returns
// io.ErrUnexpectedEOF: a volume has no end before its last block.
func vectored(op Op, fd int, iov []unix.Iovec, off int64, flags int) (int64, error) {
	trap := uintptr(unix.SYS_PREADV2)
	if op == OpWrite {
		trap = unix.SYS_PWRITEV2
	}
	for {
		// On 64-bit systems the offset's upper half, the fifth argument, is unused.
		n, _, errno := unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))),
			uintptr(len(iov)), uintptr(off), 0, uintptr(flags))
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.ErrUnexpectedEOF
		default:
			return int64(n), nil
		}
	}
}

// tryVectored makes vectored's calls, for no bytes: later a refusal, as by a seccomp profile, couldn't be told from one
// by the file.
func tryVectored(fd int, readOnly bool) error {
	if _, _, errno := unix.Syscall6(unix.SYS_PREADV2, uintptr(fd), 0, 0, 0, 0, 0); errno != 0 {
		return os.NewSyscallError("preadv2", errno)
	}
	if readOnly {
		return nil
	}
	if _, _, errno := unix.Syscall6(unix.SYS_PWRITEV2, uintptr(fd), 0, 0, 0, 0, 0); errno != 0 {
		return os.NewSyscallError("pwritev2", errno)
	}
	return nil
}

// aligned reports whether all buffers suit direct I/O: their addresses are multiples of mem and their lengths multiples
// of unit, both powers of two.
func aligned(bufs [][]byte, mem, unit int) bool {
	for _, b := range bufs {
		if len(b)&(unit-1) != 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))&uintptr(mem-1) != 0 {
			return false
		}
	}
	return true
}
