package blockdev

import (
	"io"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// queueAIO passes the aligned reads and writes of a file volume to Linux's asynchronous I/O, io_submit or io_uring. The
// goroutine that has a request submits it itself. Finished requests are completed by an attendant on duty (see package
// duty), which polls the memory that the kernel writes to, or, if nobody is on duty, by one goroutine, which blocks
// until the device has something. Requests that would block, and those that the system refuses to do asynchronously, go
// to the volume's workers.
type queueAIO struct {
	v      *file
	k      kernelAIO
	writes *aioWrites // of a volume whose writes may hang in Submit; else nil
	slots  []*aioSlot
	ended  chan struct{}

	inFlight atomic.Int64 // slots in use
	writing  atomic.Int64 // slots with writes to a regular file
	parked   atomic.Bool  // the goroutine sleeps until wake: attendants on duty complete
	closed   atomic.Bool
	wake     chan struct{} // room for one

	taking sync.Mutex // held by the attendant that completes; guards the following
	events [aioEvents]aio.Event
	row    Row

	mu   sync.Mutex // guards the following and the slots
	free []*aioSlot
}

// kernelAIO is *aio.Context or *aio.Ring.
type kernelAIO interface {
	Submit(aio.Request) error
	Wait([]aio.Event) int
	Ready() bool
	Take([]aio.Event) int
	Close()
}

// aioSlot is a request in the kernel.
type aioSlot struct {
	index int
	r     *Request
	flags int    // RWF_*
	turn  uint32 // of commits.dsyncs
	iov   nowIovecs
}

const (
	aioEntries = 256 // requests in the kernel at most
	aioEvents  = 64  // events taken at once at most
)

// newAIO starts the queue of v on k, which takes aioEntries requests.
func newAIO(v *file, k kernelAIO) *queueAIO {
	q := &queueAIO{v: v, k: k, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	q.slots = make([]*aioSlot, aioEntries)
	for i := range q.slots {
		q.slots[i] = &aioSlot{index: i}
	}
	q.free = append(q.free, q.slots...)
	duty.AddRing(q)
	go q.run()
	return q
}

// run is the goroutine that completes requests.
func (q *queueAIO) run() {
	defer close(q.ended)
	var row Row
	events := make([]aio.Event, aioEvents)
	for {
		q.park()
		n := q.k.Wait(events)
		if n == 0 {
			return
		}
		q.completeAll(&row, events[:n])
	}
}

// completeAll handles the results of slots' requests.
func (q *queueAIO) completeAll(row *Row, events []aio.Event) {
	for _, e := range events {
		q.complete(row, q.slots[e.Data], e.Res)
	}
	row.End()
}

// park keeps the goroutine out of the kernel, which would wake it for each event, while attendants look at the queue.
func (q *queueAIO) park() {
	if !duty.Attended() {
		return
	}
	q.parked.Store(true)
	if q.closed.Load() || q.inFlight.Load() > 0 && !duty.Attended() {
		q.unpark()
	}
	<-q.wake
}

// unpark makes the goroutine wait for events, if it is parked.
func (q *queueAIO) unpark() {
	if q.parked.CompareAndSwap(true, false) {
		q.wake <- struct{}{}
	}
}

// Awaited implements duty.Ring.
func (q *queueAIO) Awaited() bool { return q.parked.Load() && q.inFlight.Load() > 0 }

// Look implements duty.Ring.
func (q *queueAIO) Look() bool {
	if !q.parked.Load() {
		return false
	}
	found := q.take()
	if !found && q.writing.Load() > 0 {
		giveWay()
	}
	return found
}

// take completes finished requests, unless another goroutine is doing so.
func (q *queueAIO) take() (found bool) {
	if !q.taking.TryLock() {
		return false
	}
	defer q.taking.Unlock()
	if !q.k.Ready() {
		return false
	}
	n := q.k.Take(q.events[:])
	q.completeAll(&q.row, q.events[:n])
	return n > 0
}

// giveWay yields the processor to a thread of the kernel: it is a kernel thread that completes a write to a regular
// file, on the processor that the disk interrupted. If that is the processor that looks, the write wouldn't complete
// before the look is over.
func giveWay() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// Left implements duty.Ring.
func (q *queueAIO) Left() {
	if q.Awaited() {
		q.unpark()
	}
}

// takes reports whether r is for the kernel's queue.
func (v *file) takes(r *Request) bool {
	return (r.Op == OpRead || r.Op == OpWrite) && !v.misaligned(r)
}

// submit has the rest of r done.
func (q *queueAIO) submit(r *Request) {
	switch {
	case r.Op == OpWrite && q.writes != nil:
		q.writes.submit(r)
	case r.Op == OpWrite && (q.v.sentry.pause() > 0 || r.unwanted()):
		q.v.pool.Submit(r)
	default:
		q.begin(r)
	}
}

// begin hands the rest of r to the kernel, or else to a worker.
func (q *queueAIO) begin(r *Request) {
	q.mu.Lock()
	n := len(q.free)
	if n == 0 {
		q.mu.Unlock()
		q.v.pool.Submit(r)
		return
	}
	if !q.v.lockRange(r) { // only now: others may look at all that have their ranges, and many may wait for room
		q.mu.Unlock()
		return
	}
	s := q.free[n-1]
	q.free = q.free[:n-1]
	q.count(r, 1)
	req := q.prepare(s, r)
	q.mu.Unlock()
	if req.Len > 0 && q.k.Submit(req) == nil {
		if !duty.Attended() {
			q.unpark()
		}
		return
	}
	_, flags, turn := q.release(s)
	q.v.commits.dsyncs.end(flags, turn)
	q.v.pool.Submit(r)
}

// prepare returns a request for the rest of r, with length 0 if it has too many buffers. mu is held.
func (q *queueAIO) prepare(s *aioSlot, r *Request) aio.Request {
	s.r = r
	k := q.v.fillIovecs(s.iov[:], r)
	s.flags = q.v.writeFlags(r)
	s.turn = q.v.commits.dsyncs.begin(s.flags)
	if k == 0 {
		return aio.Request{}
	}
	req := aio.Request{Data: uint64(s.index), Op: aio.OpRead, Offset: r.Offset + r.done,
		Addr: uint64(uintptr(unsafe.Pointer(s.iov[0].Base))), Len: s.iov[0].Len}
	if k > 1 {
		req.Op = aio.OpReadv
		req.Addr, req.Len = uint64(uintptr(unsafe.Pointer(&s.iov[0]))), uint64(k)
	}
	if r.Op == OpWrite {
		req.Op++ // OpWrite and OpWritev come after their reads
	}
	req.SetFlags(s.flags | unix.RWF_NOWAIT)
	return req
}

// complete handles the result of a slot's request.
func (q *queueAIO) complete(row *Row, s *aioSlot, res int64) {
	r, flags, turn := q.release(s)
	took := q.v.took(row, r, res, flags)
	q.v.commits.dsyncs.end(flags, turn) // after took, which records if it failed
	if !took {
		q.submit(r)
	}
}

// took ends r, of which the kernel's queue has done another res bytes, with flags RWF_*; a negative res is the negated
// error with which it refused r. It returns false if the rest is to be done in the same way.
func (v *file) took(row *Row, r *Request, res int64, flags int) bool {
	switch {
	case res == 0:
		v.finishIn(row, r, io.ErrUnexpectedEOF)
	case res < 0:
		v.refused(row, r, unix.Errno(-res), flags)
	case r.done+res < r.Length:
		r.done += res
		return false
	default:
		r.done += res
		v.accepted(row, r, flags)
	}
	return true
}

// accepted ends r, all of which the kernel's queue has done.
func (v *file) accepted(row *Row, r *Request, flags int) {
	switch {
	case r.Op == OpRead:
		v.finishIn(row, r, nil)
	case r.FUA && flags == 0 || !v.commits.answers(r):
		v.pool.Submit(r) // to be made durable
	default:
		v.finishIn(row, r, nil)
		v.commits.answered()
	}
}

// refused ends a request that failed, or passes it to a worker if the system only declined to do it asynchronously.
func (v *file) refused(row *Row, r *Request, errno unix.Errno, flags int) {
	switch errno {
	case unix.EAGAIN, unix.EOPNOTSUPP, unix.EINVAL, unix.EINTR, unix.ECANCELED, unix.ENOMEM, unix.EFAULT:
		v.pool.Submit(r)
	default:
		v.failed(flags, errno)
		v.finishIn(row, r, errno)
	}
}

// release frees a slot, and returns what it held.
func (q *queueAIO) release(s *aioSlot) (r *Request, flags int, turn uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, flags, turn = s.r, s.flags, s.turn
	clear(s.iov[:])
	s.r = nil
	q.free = append(q.free, s)
	q.count(r, -1)
	return r, flags, turn
}

// count adds n to the counts of requests in the kernel, for r.
func (q *queueAIO) count(r *Request, n int64) {
	q.inFlight.Add(n)
	if r.Op == OpWrite && !q.v.device {
		q.writing.Add(n)
	}
}

// close ends the queue. Nothing is in flight, and nothing more is submitted.
func (q *queueAIO) close() {
	duty.RemoveRing(q)
	q.taking.Lock() // never unlocked: the kernel's memory is about to go
	q.closed.Store(true)
	q.unpark()
	q.k.Close()
	<-q.ended
}
