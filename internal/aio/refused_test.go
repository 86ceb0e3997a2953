package aio

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestWaitRefused: if the system refuses to say what is finished, the program ends, as its requests would never be
// answered.
func TestWaitRefused(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	each(t, func(t *testing.T, q queue, _ *os.File) {
		call := uint32(unix.SYS_IO_GETEVENTS)
		if _, is := q.(*Ring); is {
			call = unix.SYS_IO_URING_ENTER
		}
		sandbox.Refuse(t, call, unix.EPERM)
		defer func() {
			if recover() == nil {
				t.Error("it returns")
			}
		}()
		q.Wait(make([]Event, 1))
	})
}

// TestCloseRefused: a context ends, and whoever waits learns of it, though the system doesn't let it submit the request
// that says so.
func TestCloseRefused(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	c, err := OpenContext(1, int(newFile(t).Fd()))
	if err != nil {
		lacking(t, err)
	}
	sandbox.Refuse(t, unix.SYS_IO_SUBMIT, unix.EPERM)
	shut(t, c)
}
