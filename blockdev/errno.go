package blockdev

import (
	"errors"

	"golang.org/x/sys/unix"
)

// KindOf gives the kind of failure that an error of the operating system is. What it
// doesn't know is a medium error: the data can't be vouched for.
func KindOf(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return ErrMedium
	}
	switch errno {
	case unix.ENOSPC, unix.EDQUOT, unix.EFBIG:
		return ErrCapacity
	case unix.EROFS, unix.EPERM, unix.EACCES:
		return ErrReadOnly
	case unix.ENODEV, unix.ENXIO, unix.ENOMEDIUM, unix.ESHUTDOWN, unix.ESTALE, unix.EBADF:
		return ErrGone
	case unix.ENOLINK, unix.ETIMEDOUT, unix.ETIME, // of the block layer, and those that follow of file systems of a network
		unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENETDOWN, unix.ENETUNREACH, unix.ENETRESET, unix.ENOTCONN,
		unix.ECONNREFUSED, unix.ECONNRESET, unix.ECONNABORTED, unix.EPIPE:
		return ErrUnreachable
	case unix.EBUSY, unix.ETXTBSY, unix.EAGAIN,
		unix.ENOMEM, // the system's memory, of which a read may want some, too
		unix.EMFILE, unix.ENFILE, unix.ENOLCK:
		return ErrBusy
	case unix.EOPNOTSUPP, unix.ENOSYS, unix.ENOTTY:
		return ErrUnsupported
	case unix.EINVAL, unix.ENOENT, unix.EISDIR, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EEXIST:
		return ErrInvalid
	}
	return ErrMedium
}
