package blockdev

import (
	"io"

	"golang.org/x/sys/unix"
)

// takes reports whether r is for the kernel's queue.
func (v *file) takes(r *Request) bool {
	return (r.Op == OpRead || r.Op == OpWrite) && !v.misaligned(r)
}

// took ends r, of which the kernel's queue has done another res bytes, with flags RWF_*; a negative res is the negated
// error with which it refused r. It returns false if the rest is to be done in the same way.
func (v *file) took(row *Row, r *Request, res int64, flags int) bool {
	switch {
	case res == 0:
		v.finishIn(row, r, io.ErrUnexpectedEOF)
	case res < 0:
		v.refused(row, r, unix.Errno(-res), flags)
	case r.done+res < r.Length:
		r.done += res
		return false
	default:
		r.done += res
		if r.Op == OpWrite && (r.FUA && flags == 0 || v.commits.late(r)) {
			v.pool.Submit(r) // to be made durable
		} else {
			v.finishIn(row, r, nil)
		}
	}
	return true
}

// refused ends a request that failed, or passes it to a worker if the system only declined to do it asynchronously.
func (v *file) refused(row *Row, r *Request, errno unix.Errno, flags int) {
	switch errno {
	case unix.EAGAIN, unix.EOPNOTSUPP, unix.EINVAL, unix.EINTR, unix.ECANCELED, unix.ENOMEM, unix.EFAULT:
		v.pool.Submit(r)
	default:
		v.failed(flags, errno)
		v.finishIn(row, r, errno)
	}
}
