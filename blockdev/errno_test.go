package blockdev_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

func TestKindOf(t *testing.T) {
	for err, want := range map[error]error{
		unix.EIO:                         blockdev.ErrMedium,
		unix.ENOSPC:                      blockdev.ErrCapacity,
		unix.EDQUOT:                      blockdev.ErrCapacity,
		unix.EROFS:                       blockdev.ErrReadOnly,
		unix.ENODEV:                      blockdev.ErrGone,
		unix.ENXIO:                       blockdev.ErrGone,
		unix.ETIMEDOUT:                   blockdev.ErrUnreachable, // the block layer, if a disk doesn't answer; NFS, mounted soft
		unix.ETIME:                       blockdev.ErrUnreachable, // the block layer, if a request's time limit is over
		unix.ENOLINK:                     blockdev.ErrUnreachable, // the block layer, for the path to the disk
		unix.EHOSTDOWN:                   blockdev.ErrUnreachable, // CIFS
		unix.EHOSTUNREACH:                blockdev.ErrUnreachable,
		unix.ENETDOWN:                    blockdev.ErrUnreachable,
		unix.ENETUNREACH:                 blockdev.ErrUnreachable,
		unix.ENETRESET:                   blockdev.ErrUnreachable,
		unix.ENOTCONN:                    blockdev.ErrUnreachable, // FUSE, whose program has ended
		unix.ECONNREFUSED:                blockdev.ErrUnreachable,
		unix.ECONNRESET:                  blockdev.ErrUnreachable,
		unix.ECONNABORTED:                blockdev.ErrUnreachable, // FUSE, whose connection was ended; CIFS
		unix.EPIPE:                       blockdev.ErrUnreachable,
		unix.EBUSY:                       blockdev.ErrBusy,
		unix.ENOMEM:                      blockdev.ErrBusy,
		unix.EMFILE:                      blockdev.ErrBusy,
		unix.ENFILE:                      blockdev.ErrBusy,
		unix.ENOLCK:                      blockdev.ErrBusy, // flock(2): no memory for locks
		unix.EOPNOTSUPP:                  blockdev.ErrUnsupported,
		unix.EINVAL:                      blockdev.ErrInvalid,
		unix.ENODATA:                     blockdev.ErrMedium,
		os.ErrClosed:                     blockdev.ErrMedium,
		fmt.Errorf("x: %w", unix.ENOSPC): blockdev.ErrCapacity,
	} {
		if got := blockdev.KindOf(err); !errors.Is(got, want) {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
	err := error(&blockdev.OpError{Op: "write", Path: "v", Offset: 512, Kind: blockdev.ErrMedium, Err: unix.EIO})
	if !errors.Is(err, unix.EIO) || !errors.Is(err, blockdev.ErrMedium) || errors.Is(err, blockdev.ErrGone) {
		t.Errorf("%v is the wrong things", err)
	}
}
