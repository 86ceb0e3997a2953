package aio

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/standstill"
)

// Context is a kernel's aio_context_t.
type Context struct {
	id     uintptr
	fd     uint32 // that requests are for
	closed atomic.Bool
}

// OpenContext returns a context for n requests at a time to the file of fd. Errors say what the system lacks or
// forbids.
func OpenContext(n, fd int) (*Context, error) {
	c := &Context{fd: uint32(fd)}
	_, _, errno := unix.Syscall(unix.SYS_IO_SETUP, uintptr(n+1), uintptr(unsafe.Pointer(&c.id)), 0)
	switch errno {
	case 0:
		standstill.Enter()
		if err := c.try(); err != nil {
			c.destroy()
			return nil, err
		}
		return c, nil
	case unix.ENOSYS:
		return nil, fmt.Errorf("this kernel has no asynchronous I/O: %w", errno)
	case unix.EAGAIN:
		return nil, fmt.Errorf("asynchronous I/O: the system's requests are used up (sysctl fs.aio-max-nr): %w", errno)
	}
	return nil, fmt.Errorf("asynchronous I/O: io_setup: %w", errno)
}

// try makes the calls that a context is used by, for no requests: the system may allow to set one up and refuse these.
func (c *Context) try() error {
	if _, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, c.id, 0, 0); errno != 0 {
		return fmt.Errorf("asynchronous I/O: io_submit: %w", errno)
	}
	if _, errno := c.take(nil); errno != 0 {
		return fmt.Errorf("asynchronous I/O: io_getevents: %w", errno)
	}
	return nil
}

// Submit hands a request to the kernel. Whether it blocks is up to the file system: with RWF_NOWAIT the event says
// EAGAIN instead. The error is a unix.Errno: EAGAIN if the context is full.
func (c *Context) Submit(r Request) error {
	r.fd = c.fd
	all := [1]*Request{&r}
	for {
		_, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, c.id, 1, uintptr(unsafe.Pointer(&all)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// Wait blocks until there are events, and takes them. After Close it returns 0, and must not be called again.
func (c *Context) Wait(events []Event) int {
	for {
		standstill.Blocks()
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, c.id, 1, uintptr(len(events)),
			uintptr(unsafe.Pointer(unsafe.SliceData(events))), 0, 0)
		switch {
		case errno == unix.EINTR || errno == 0 && n == 0:
		case errno != 0 && c.closed.Load():
			return 0
		case errno != 0:
			cannotWait("io_getevents", errno)
		case events[0].Data == closing:
			c.destroy()
			return 0
		default:
			return int(n)
		}
	}
}

// header is the beginning of struct aio_ring, which the kernel maps at the address that is the context's number.
type header struct {
	_          [8]byte // id, nr
	head, tail uint32
}

// Ready reports whether Take would find events, by looking at memory only. It must not be called after Close.
func (c *Context) Ready() bool {
	r := *(**header)(unsafe.Pointer(&c.id))
	return atomic.LoadUint32(&r.head) != atomic.LoadUint32(&r.tail)
}

// Take is Wait, but returns 0 instead of waiting. It may be called concurrently with it.
func (c *Context) Take(events []Event) int {
	n, errno := c.take(events)
	if errno != 0 {
		return 0 // Wait meets the error again, if it is one
	}
	return n
}

func (c *Context) take(events []Event) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_IO_GETEVENTS, c.id, 0, uintptr(len(events)),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(unsafe.Pointer(&noTime)), 0)
	return int(n), errno
}

// noTime is the timeout of Take.
var noTime unix.Timespec

// Close makes Wait return, which ends the context. It must be called once, after the events of all submitted requests
// have been taken. It leaves the end of the context to the goroutine in Wait, if possible: that might continue with a
// number that is another context's by then.
func (c *Context) Close() {
	c.closed.Store(true)
	if c.Submit(Request{Data: closing, Op: OpRead}) != nil { // of nothing, which completes at once
		c.destroy() // nothing else would wake the goroutine in Wait
	}
}

func (c *Context) destroy() {
	_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, c.id, 0, 0)
	standstill.Leave()
}
