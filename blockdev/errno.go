package blockdev

import (
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// KindOf returns the kind of failure that an error of the operating system is. An unknown error is a medium error: the
// data can't be trusted.
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
	case unix.ENOLINK, unix.ETIMEDOUT, unix.ETIME, // from the block layer; the following are from network file systems
		unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENETDOWN, unix.ENETUNREACH, unix.ENETRESET, unix.ENOTCONN,
		unix.ECONNREFUSED, unix.ECONNRESET, unix.ECONNABORTED, unix.EPIPE:
		return ErrUnreachable
	case unix.EBUSY, unix.ETXTBSY, unix.EAGAIN,
		unix.ENOMEM, // system memory, which a read may need, too
		unix.EMFILE, unix.ENFILE, unix.ENOLCK:
		return ErrBusy
	case unix.EOPNOTSUPP, unix.ENOSYS, unix.ENOTTY:
		return ErrUnsupported
	case unix.EINVAL, unix.ENOENT, unix.EISDIR, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EEXIST:
		return ErrInvalid
	}
	return ErrMedium
}

// TooLargeRemedy says what limits the size of a file (EFBIG), and what to do.
func TooLargeRemedy() string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil && limit.Cur != unix.RLIM_INFINITY {
		return fmt.Sprintf("this process may write to the first %s of a file only: raise that limit (`ulimit -f`, LimitFSIZE= of a unit)",
			humanize.IBytes(limit.Cur))
	}
	return "its file system takes none of that size; take a smaller one"
}

// retry calls fn until it isn't interrupted by a signal.
func retry(fn func() error) error {
	for {
		if err := fn(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
