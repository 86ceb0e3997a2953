package blockdev

import (
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// iovecs is room for one vectored call; longer lists take several.
type iovecs [128]unix.Iovec

// nowIovecs is that of the inline path, on the stack.
type nowIovecs [16]unix.Iovec

// fillIovecs describes bufs from byte skip on, as many as iov has room for.
func fillIovecs(iov []unix.Iovec, bufs [][]byte, skip int64) int {
	n := 0
	for _, b := range bufs {
		if skip >= int64(len(b)) {
			skip -= int64(len(b))
			continue
		}
		if n == len(iov) {
			break
		}
		iov[n].Base = &b[skip]
		iov[n].SetLen(len(b) - int(skip))
		skip = 0
		n++
	}
	return n
}

// vectored is preadv2 or pwritev2, without the allocations of package unix's. A read at the
// end of the file is io.ErrUnexpectedEOF: a volume has no end before its last block.
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

// aligned tells whether all buffers fit direct I/O: addresses and lengths that are multiples
// of mem and unit, both powers of two.
func aligned(bufs [][]byte, mem, unit int) bool {
	for _, b := range bufs {
		if len(b)&(unit-1) != 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))&uintptr(mem-1) != 0 {
			return false
		}
	}
	return true
}
