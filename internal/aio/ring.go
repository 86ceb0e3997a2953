package aio

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/standstill"
)

// Ring is an io_uring.
type Ring struct {
	fd    int
	file  [1]int32 // the registered one
	mode  string
	rings []byte // both queues' indices, and the completions
	area  []byte // the entries' memory

	mu      sync.Mutex // held by whoever submits; guards the following
	entries []entry
	sqTail  *atomic.Uint32
	sqMask  uint32
	buffers buffers
	closed  bool

	taking         sync.Mutex // held by whoever takes completions
	completions    []completion
	cqHead, cqTail *atomic.Uint32
	cqMask         uint32
}

// ringModes are the ways of completing requests: in a system call that the thread makes anyway (Linux 5.19), or by
// interrupting the thread.
var ringModes = []struct {
	flags uint32
	name  string
}{
	{setupCoopTaskrun | setupSubmitAll, "cooperative completion"},
	{0, "plain"},
}

// OpenRing returns a ring for n requests at a time to the file of fd, which it registers. Errors say what the system
// lacks or forbids.
func OpenRing(n, fd int) (*Ring, error) {
	r := &Ring{fd: -1, file: [1]int32{int32(fd)}}
	p, err := r.setup(n)
	if err != nil {
		return nil, explain(err)
	}
	if err := r.start(p); err != nil {
		r.release()
		return nil, err
	}
	r.makeBuffers()
	openRings.Add(1)
	standstill.Enter()
	return r, nil
}

func (r *Ring) setup(n int) (p *params, err error) {
	for _, m := range ringModes {
		p = &params{flags: setupClamp | m.flags}
		fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(n), uintptr(unsafe.Pointer(p)), 0)
		if errno == 0 {
			r.fd, r.mode = int(fd), m.name
			return p, nil
		}
		if err = errno; errno != unix.EINVAL {
			break // it isn't because of the mode
		}
	}
	return nil, err
}

// explain says why there is no ring, and what can be done about it.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("this kernel has no io_uring: %w", err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		if s, e := os.ReadFile("/proc/sys/kernel/io_uring_disabled"); e == nil && strings.TrimSpace(string(s)) != "0" {
			return fmt.Errorf("io_uring is disabled (sysctl kernel.io_uring_disabled=%s): %w", strings.TrimSpace(string(s)), err)
		}
		return fmt.Errorf("io_uring is forbidden here, as by a container's seccomp profile: %w", err)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("io_uring needs more locked memory than allowed (ulimit -l): %w", err)
	}
	return fmt.Errorf("io_uring: %w", err)
}

// start maps the queues and registers the file.
func (r *Ring) start(p *params) error {
	if p.features&featSingleMmap == 0 || p.features&featNoDrop == 0 {
		return errors.New("this kernel's io_uring is too old: Linux 5.5 is needed")
	}
	if err := r.mapQueues(p); err != nil {
		return err
	}
	if err := r.register(registerFiles, unsafe.Pointer(&r.file), len(r.file)); err != nil {
		return fmt.Errorf("io_uring: registering files: %w", err)
	}
	if _, errno := r.enter(0, 0); errno != 0 { // else nothing could be submitted, nor the ring closed
		return explain(errno)
	}
	return nil
}

func (r *Ring) mapQueues(p *params) error {
	size := max(int(p.sq.array)+4*int(p.sqEntries), int(p.cq.cqes)+int(p.cqEntries)*int(unsafe.Sizeof(completion{})))
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	var err error
	if r.rings, err = unix.Mmap(r.fd, offSQRing, size, prot, flags); err != nil {
		return fmt.Errorf("io_uring: mapping the queues: %w", err)
	}
	if r.area, err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(entry{})), prot, flags); err != nil {
		return fmt.Errorf("io_uring: mapping the entries: %w", err)
	}
	at := func(off uint32) unsafe.Pointer { return unsafe.Pointer(&r.rings[off]) }
	r.sqTail = (*atomic.Uint32)(at(p.sq.tail))
	r.cqHead, r.cqTail = (*atomic.Uint32)(at(p.cq.head)), (*atomic.Uint32)(at(p.cq.tail))
	r.sqMask, r.cqMask = p.sqEntries-1, p.cqEntries-1
	r.entries = unsafe.Slice((*entry)(unsafe.Pointer(&r.area[0])), p.sqEntries)
	r.completions = unsafe.Slice((*completion)(at(p.cq.cqes)), p.cqEntries)
	array := unsafe.Slice((*uint32)(at(p.sq.array)), p.sqEntries)
	for i := range array {
		array[i] = uint32(i) // entry i is always at place i
	}
	return nil
}

// Mode says how requests complete, for people.
func (r *Ring) Mode() string { return r.mode }

// mostBytes is how much of a request is done at most: an entry has 32 bits for the length, and the kernel's own limit
// isn't a multiple of large blocks.
const mostBytes = 1 << 30

// Submit hands a request to the kernel, and doesn't block: without RWF_NOWAIT a kernel thread does what would block.
// The error is a unix.Errno: EAGAIN if the kernel is short of memory. No more requests may be in flight than OpenRing
// was told. Data has 48 bits.
func (r *Ring) Submit(q Request) error {
	e := entry{flags: fixedFile, off: uint64(q.Offset), addr: q.Addr, len: uint32(min(q.Len, mostBytes)),
		rwFlags: uint32(q.Flags()), userData: q.Data}
	r.mu.Lock()
	defer r.mu.Unlock()
	place, fixed := uint16(0), false
	if q.Op == OpRead || q.Op == OpWrite {
		place, fixed = r.buffers.place(q.Addr, q.Len)
	}
	e.bufIndex = place
	switch {
	case q.Op == OpReadv:
		e.opcode = ringReadv
	case q.Op == OpWritev:
		e.opcode = ringWritev
	case q.Op == OpRead && fixed:
		e.opcode = ringReadFixed
	case q.Op == OpRead:
		e.opcode = ringRead
	case fixed:
		e.opcode = ringWriteFixed
	default:
		e.opcode = ringWrite
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := threadPlace()
	e.userData |= p << placeShift
	underWay[p].Add(1)
	err := r.submit(&e)
	if err != nil {
		underWay[p].Add(-1)
	}
	return err
}

// submit hands an entry to the kernel. mu is held.
func (r *Ring) submit(e *entry) error {
	tail := r.sqTail.Load()
	r.entries[tail&r.sqMask] = *e
	r.sqTail.Store(tail + 1)
	for {
		n, errno := r.enter(1, 0)
		switch {
		case errno == 0 && n == 1:
			return nil
		case errno == unix.EINTR:
			continue
		case errno == 0:
			errno = unix.EAGAIN
		}
		r.sqTail.Store(tail) // the kernel hasn't taken it, and won't look for it in a later call
		return errno
	}
}

// Wait blocks until there are events, and takes them. After Close it returns 0, and must not be called again.
func (r *Ring) Wait(events []Event) int {
	for {
		if n := r.Take(events); n > 0 {
			if events[0].Data == closing {
				r.end()
				return 0
			}
			return n
		}
		standstill.Blocks()
		switch _, errno := r.enter(0, 1); errno {
		case 0, unix.EINTR, unix.EAGAIN, unix.EBUSY:
		default:
			cannotWait("io_uring_enter", errno)
		}
	}
}

// enter submits entries, or waits for completions.
func (r *Ring) enter(submit, wait uintptr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), submit, wait, wait*enterGetEvents, 0, 0)
	return int(n), errno
}

// Ready reports whether Take would find events, by looking at memory only. It must not be called after Close.
func (r *Ring) Ready() bool { return r.cqHead.Load() != r.cqTail.Load() }

// Take is Wait, but returns 0 instead of waiting. It may be called concurrently with it.
func (r *Ring) Take(events []Event) int {
	r.taking.Lock()
	defer r.taking.Unlock()
	head := r.cqHead.Load()
	n := min(len(events), int(r.cqTail.Load()-head))
	for i := range n {
		c := &r.completions[(head+uint32(i))&r.cqMask]
		events[i] = Event{Data: c.userData, Res: int64(c.res)}
		if c.userData != closing {
			events[i].Data &= dataMask
			underWay[c.userData>>placeShift].Add(-1)
		}
	}
	r.cqHead.Store(head + uint32(n))
	return n
}

// Close makes Wait return, which ends the ring. It must be called once, after the events of all submitted requests have
// been taken. The kernel has released the file when Wait returns.
func (r *Ring) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for r.submit(&entry{opcode: ringNop, userData: closing}) != nil {
		runtime.Gosched() // until there is memory
	}
}

// end ends the ring, when the request of Close has completed. It unregisters the file first: otherwise the kernel would
// do so some time after the ring was closed, and until then the file's file system couldn't be unmounted.
func (r *Ring) end() {
	r.mu.Lock()
	defer r.mu.Unlock()                     // Close is over
	_ = r.register(unregisterFiles, nil, 0) // if that fails the kernel does it later
	r.release()
	openRings.Add(-1)
	standstill.Leave()
}

// release frees what setup and start allocated.
func (r *Ring) release() {
	if r.area != nil {
		_ = unix.Munmap(r.area)
	}
	if r.rings != nil {
		_ = unix.Munmap(r.rings)
	}
	unix.Close(r.fd)
}

// register calls again what a signal interrupts: older kernels wait until nobody uses what is to change.
func (r *Ring) register(what int, arg unsafe.Pointer, n int) error {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), uintptr(what), uintptr(arg), uintptr(n), 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}
