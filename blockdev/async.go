package blockdev

import (
	"io"

	"golang.org/x/sys/unix"
)

// takes tells whether r is for the kernel's queue.
func (v *file) takes(r *Request) bool {
	return (r.Op == OpRead || r.Op == OpWrite) && !v.misaligned(r)
}

// took ends r, of which the kernel's queue has done res bytes more, with flags RWF_*, or which it
// refused with an error negated. It returns false where the rest is to be done in the same way.
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

// refused ends a request that failed, or leaves it to a worker where the system only didn't
// want to do it in this way.
func (v *file) refused(row *Row, r *Request, errno unix.Errno, flags int) {
	switch errno {
	case unix.EAGAIN, unix.EOPNOTSUPP, unix.EINVAL, unix.EINTR, unix.ECANCELED, unix.ENOMEM, unix.EFAULT:
		v.pool.Submit(r)
	default:
		v.failed(flags, errno)
		v.finishIn(row, r, errno)
	}
}
