package aio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Request is struct iocb.
type Request struct {
	Data   uint64 // comes back in the event
	flags  uint64 // RWF_* in the upper half; the kernel's key in the lower, which is 0
	Op     Op
	_      int16 // priority
	fd     uint32
	Addr   uint64 // of the buffer, or of the iovecs
	Len    uint64 // bytes, or iovecs
	Offset int64
	_      uint64
	_      uint64 // an eventfd, unused
}

// SetFlags sets RWF_*.
func (r *Request) SetFlags(rwf int) { r.flags = uint64(uint32(rwf)) << 32 }

// Flags returns what SetFlags set.
func (r *Request) Flags() int { return int(r.flags >> 32) }

// Event is struct io_event.
type Event struct {
	Data uint64
	_    uint64
	Res  int64 // the system call's result, or a negated error
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

// The sizes that the kernel's interface prescribes.
var (
	_ [64]byte = [unsafe.Sizeof(Request{})]byte{}
	_ [32]byte = [unsafe.Sizeof(Event{})]byte{}
)

// closing marks the last request.
const closing = 1<<64 - 1

// cannotWait ends the program if the system no longer says which requests are finished, for which it has no reason.
// Those under way can't be failed either: the kernel may still use their memory.
func cannotWait(call string, errno unix.Errno) {
	panic("asynchronous I/O: " + call + ": " + errno.Error() + ": requests under way would never be answered")
}
