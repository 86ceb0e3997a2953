package aio

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// If the system lacks something, the error says what to do.
func TestExplain(t *testing.T) {
	for errno, word := range map[unix.Errno]string{
		unix.ENOSYS: "kernel", unix.EPERM: "io_uring", unix.ENOMEM: "ulimit -l", unix.EIO: "io_uring",
	} {
		err := explain(errno)
		if !errors.Is(err, errno) || !strings.Contains(err.Error(), word) {
			t.Errorf("%v is told as %q", errno, err)
		}
	}
}
