package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/standstill"
)

// Ring is one io_uring. See the package on who may call what.
type Ring struct {
	fd      int
	mode    string
	rings   []byte // both queues' indices, and the completions
	entries []byte // the submission entries

	sqes           []SQE
	sqHead, sqTail *atomic.Uint32
	sqMask         uint32
	tail           uint32 // entries handed out; the kernel sees sqTail
	cqes           []CQE
	cqHead, cqTail *atomic.Uint32
	cqMask         uint32
	wakeFD         int
	woken          [8]byte // what the kernel reads of wakeFD
	wantsListen    bool
	counted        bool // in standstill
	files          []int32
	iov            unix.Iovec // of SetBuffer, at a place that stays
}

// wakeData marks the ring's own request.
const wakeData = 1<<64 - 1

// modes are the ways of completing requests, the cheapest first: only when the owner asks
// (6.1), without interrupting it (5.19), and as the first io_uring did.
var modes = []struct {
	flags uint32
	name  string
}{
	{setupSingleIssuer | setupDeferTaskrun | setupSubmitAll, "deferred completion"},
	{setupCoopTaskrun | setupSubmitAll, "cooperative completion"},
	{0, "plain"},
}

// Open makes a ring for entries requests in one submission, a power of two, on the files of
// fds, which entries name by their index. Errors say what the system lacks or forbids.
func Open(entries uint32, fds ...int) (*Ring, error) {
	r := &Ring{fd: -1, wakeFD: -1}
	p, err := r.setup(entries)
	if err != nil {
		return nil, explain(err)
	}
	if err := r.start(p, fds); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Ring) setup(entries uint32) (p *params, err error) {
	for _, m := range modes {
		p = &params{flags: setupClamp | m.flags}
		fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
		if errno == 0 {
			r.fd, r.mode = int(fd), m.name
			return p, nil
		}
		if err = errno; errno != unix.EINVAL {
			break // it isn't the mode
		}
	}
	return nil, err
}

// explain says why there is no ring, with what can be done about it.
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

// start maps the queues, registers the files and begins to listen for Wake.
func (r *Ring) start(p *params, fds []int) error {
	if p.features&featSingleMmap == 0 || p.features&featNoDrop == 0 {
		return errors.New("this kernel's io_uring is too old: Linux 5.5 is needed")
	}
	if err := r.mapQueues(p); err != nil {
		return err
	}
	var err error
	if r.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("io_uring: eventfd: %w", err)
	}
	for _, fd := range fds {
		r.files = append(r.files, int32(fd))
	}
	r.files = append(r.files, int32(r.wakeFD))
	if err := r.register(registerFiles, unsafe.Pointer(&r.files[0]), len(r.files)); err != nil {
		return fmt.Errorf("io_uring: registering files: %w", err)
	}
	r.wantsListen, r.counted = true, true
	standstill.Enter()
	return nil
}

func (r *Ring) mapQueues(p *params) error {
	size := max(int(p.sq.array)+4*int(p.sqEntries), int(p.cq.cqes)+int(p.cqEntries)*int(unsafe.Sizeof(CQE{})))
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	var err error
	if r.rings, err = unix.Mmap(r.fd, offSQRing, size, prot, flags); err != nil {
		return fmt.Errorf("io_uring: mapping the queues: %w", err)
	}
	if r.entries, err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(SQE{})), prot, flags); err != nil {
		return fmt.Errorf("io_uring: mapping the entries: %w", err)
	}
	at := func(off uint32) unsafe.Pointer { return unsafe.Pointer(&r.rings[off]) }
	r.sqHead, r.sqTail = (*atomic.Uint32)(at(p.sq.head)), (*atomic.Uint32)(at(p.sq.tail))
	r.cqHead, r.cqTail = (*atomic.Uint32)(at(p.cq.head)), (*atomic.Uint32)(at(p.cq.tail))
	r.sqMask, r.cqMask = p.sqEntries-1, p.cqEntries-1
	r.sqes = unsafe.Slice((*SQE)(unsafe.Pointer(&r.entries[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*CQE)(at(p.cq.cqes)), p.cqEntries)
	array := unsafe.Slice((*uint32)(at(p.sq.array)), p.sqEntries)
	for i := range array {
		array[i] = uint32(i) // entry i is always at place i
	}
	r.tail = r.sqTail.Load()
	return nil
}

// Mode says how requests complete, for people.
func (r *Ring) Mode() string { return r.mode }

// Entries is how many requests one Enter can submit. Twice as many may be in flight.
func (r *Ring) Entries() int { return len(r.sqes) - 1 } // one is the ring's own

// Next gives an empty entry to fill in before Enter; nil where Entries are taken.
func (r *Ring) Next() *SQE {
	if int(r.tail-r.sqHead.Load()) >= len(r.sqes)-1 {
		return nil
	}
	return r.next()
}

func (r *Ring) next() *SQE {
	e := &r.sqes[r.tail&r.sqMask]
	r.tail++
	*e = SQE{}
	return e
}

// Enter submits the entries that Next gave. With wait it returns when there is something to
// reap, or Wake was called.
func (r *Ring) Enter(wait bool) error {
	if r.wantsListen {
		r.listen()
	}
	r.sqTail.Store(r.tail)
	var least uintptr
	if wait && !r.Ready() {
		least = 1
		standstill.Blocks()
	}
	for {
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.tail-r.sqHead.Load()),
			least, enterGetEvents, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		case unix.EAGAIN, unix.EBUSY:
			return nil // short of memory or of completions reaped: the entries stay for the next time
		default:
			return fmt.Errorf("io_uring_enter: %w", errno)
		}
	}
}

// listen has the kernel read what Wake writes.
func (r *Ring) listen() {
	e := r.next()
	e.Opcode, e.Flags, e.FD = OpRead, FixedFile, int32(len(r.files)-1)
	e.Addr, e.Len = uint64(uintptr(unsafe.Pointer(&r.woken))), uint32(len(r.woken))
	e.UserData = wakeData
	r.wantsListen = false
}

// Ready tells whether there is something to reap without Enter.
func (r *Ring) Ready() bool { return r.cqHead.Load() != r.cqTail.Load() }

// Reap calls f with each completion that has arrived. f may call Next.
func (r *Ring) Reap(f func(CQE)) {
	head, tail := r.cqHead.Load(), r.cqTail.Load()
	for ; head != tail; head++ {
		c := r.cqes[head&r.cqMask]
		r.cqHead.Store(head + 1)
		if c.UserData == wakeData {
			r.wantsListen = true
			continue
		}
		f(c)
	}
}

// Wake ends an Enter that waits, or the next one that would. It may be called from any
// goroutine until Close.
func (r *Ring) Wake() {
	_, _ = unix.Write(r.wakeFD, one) // fails only when it is full of wakes
}

// one is what eventfd adds.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// Close ends the ring and waits for what is in flight, which completes unseen. The kernel has
// let go of the registered files when it returns.
func (r *Ring) Close() {
	if r.counted {
		r.releaseFiles()
		standstill.Leave()
	}
	if r.wakeFD >= 0 {
		unix.Close(r.wakeFD)
	}
	if r.entries != nil {
		_ = unix.Munmap(r.entries)
	}
	if r.rings != nil {
		_ = unix.Munmap(r.rings)
	}
	unix.Close(r.fd)
}

// releaseFiles waits for what is in flight and unregisters the files. Otherwise the kernel would
// do it some time after the ring was closed, and until then nobody could unmount where they lie.
func (r *Ring) releaseFiles() {
	for r.sqHead.Load() != r.cqHead.Load() { // each entry has one completion
		if !r.wantsListen {
			r.Wake()
		}
		if r.Enter(true) != nil {
			return
		}
		r.Reap(func(CQE) {})
	}
	for errors.Is(r.register(unregisterFiles, nil, 0), unix.EINTR) {
	} // and with another error the kernel does it later
}

func (r *Ring) register(what int, arg unsafe.Pointer, n int) error {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), uintptr(what), uintptr(arg), uintptr(n), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
