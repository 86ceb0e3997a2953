package aio

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/standstill"
)

// Request is struct iocb.
type Request struct {
	Data   uint64 // comes back in the event
	flags  uint64 // RWF_* in the upper half; the kernel's key in the lower, which is 0
	Op     Op
	_      int16 // priority
	FD     uint32
	Addr   uint64 // of the buffer, or of the iovecs
	Len    uint64 // bytes, or iovecs
	Offset int64
	_      uint64
	_      uint64 // an eventfd, unused
}

// SetFlags sets RWF_*.
func (r *Request) SetFlags(rwf int) { r.flags = uint64(uint32(rwf)) << 32 }

// Flags gives what SetFlags set.
func (r *Request) Flags() int { return int(r.flags >> 32) }

// Event is struct io_event.
type Event struct {
	Data uint64
	_    uint64
	Res  int64 // as the system call's, or an error negated
	_    int64
}

// Op is what a request does (IOCB_CMD_*).
type Op uint16

// Operations.
const (
	OpRead   Op = 0
	OpWrite  Op = 1
	OpReadv  Op = 7
	OpWritev Op = 8
)

// The sizes that the kernel's interface fixes.
var (
	_ [64]byte = [unsafe.Sizeof(Request{})]byte{}
	_ [32]byte = [unsafe.Sizeof(Event{})]byte{}
)

// Context is a kernel's aio_context_t.
type Context struct {
	id   uintptr
	fd   uint32  // that requests are for
	last Request // Close's
}

// closing marks the last request.
const closing = 1<<64 - 1

// ErrClosed is what Wait says after Close.
var ErrClosed = errors.New("asynchronous I/O: closed")

// Open makes a context for n requests at a time to the file of fd. Errors say what the system lacks
// or forbids.
func Open(n, fd int) (*Context, error) {
	c := &Context{fd: uint32(fd)}
	_, _, errno := unix.Syscall(unix.SYS_IO_SETUP, uintptr(n+1), uintptr(unsafe.Pointer(&c.id)), 0)
	switch errno {
	case 0:
		standstill.Enter()
		return c, nil
	case unix.ENOSYS:
		return nil, fmt.Errorf("this kernel has no asynchronous I/O: %w", errno)
	case unix.EAGAIN:
		return nil, fmt.Errorf("asynchronous I/O: the system's requests are used up (sysctl fs.aio-max-nr): %w", errno)
	}
	return nil, fmt.Errorf("asynchronous I/O: io_setup: %w", errno)
}

// Submit hands a request to the kernel. Whether it blocks is up to the file system: with RWF_NOWAIT the
// event says EAGAIN instead. The error is a unix.Errno: EAGAIN where the context is full.
//
// r lies in memory that stays where it is, as the Go heap's does, and isn't written to.
func (c *Context) Submit(r *Request) error {
	all := [1]*Request{r}
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

// Wait blocks until there are events, and takes them. It returns ErrClosed after Close, and is not
// to be called again then.
func (c *Context) Wait(events []Event) (int, error) {
	for {
		standstill.Blocks()
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, c.id, 1, uintptr(len(events)),
			uintptr(unsafe.Pointer(unsafe.SliceData(events))), 0, 0)
		switch {
		case errno == unix.EINTR || errno == 0 && n == 0:
		case errno != 0:
			return 0, fmt.Errorf("asynchronous I/O: io_getevents: %w", errno)
		case events[0].Data == closing:
			c.destroy()
			return 0, ErrClosed
		default:
			return int(n), nil
		}
	}
}

// ring is the beginning of struct aio_ring, which the kernel maps where a context's number says.
type ring struct {
	_          [8]byte // id, nr
	head, tail uint32
}

// Ready tells whether Take would find events, by a look into memory. It must not be called after Close.
func (c *Context) Ready() bool {
	r := *(**ring)(unsafe.Pointer(&c.id))
	return atomic.LoadUint32(&r.head) != atomic.LoadUint32(&r.tail)
}

// Take is Wait that returns 0 instead of waiting. It may be called beside it.
func (c *Context) Take(events []Event) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_IO_GETEVENTS, c.id, 0, uintptr(len(events)),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(unsafe.Pointer(&noTime)), 0)
	if errno != 0 {
		return 0 // Wait meets the error again, if it is one
	}
	return int(n)
}

// noTime is how long Take waits.
var noTime unix.Timespec

// Close has Wait end, and with it the context. It must be called once, when the events of all that was
// submitted have been taken. It doesn't end the context itself: the one who waits would go on with a
// number that may be another context's by then.
func (c *Context) Close() {
	c.last = Request{Data: closing, Op: OpRead, FD: c.fd} // of nothing, which ends at once
	if c.Submit(&c.last) != nil {
		c.destroy() // nothing else wakes who waits
	}
}

func (c *Context) destroy() {
	_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, c.id, 0, 0)
	standstill.Leave()
}
