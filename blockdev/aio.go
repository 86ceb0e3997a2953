package blockdev

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// queueAIO gives the aligned reads and writes of a file volume to Linux's asynchronous I/O. Whoever
// has a request submits it by itself, and one goroutine, which blocks until the device has
// something, completes what is done: between the two nobody need be woken. What would block, and
// what the system refuses to do in this way, goes to the volume's workers.
type queueAIO struct {
	v     *file
	k     kernelAIO
	fd    uint32
	ended chan struct{}

	mu   sync.Mutex // and guards the slots
	free []*aioSlot
}

// kernelAIO is what a queueAIO needs of *aio.Context, the only one outside of tests.
type kernelAIO interface {
	Submit(*aio.Request) error
	Wait([]aio.Event) (int, error)
	Close()
}

// aioSlot is a request in the kernel.
type aioSlot struct {
	index int
	r     *Request
	flags int // RWF_*
	iov   nowIovecs
	req   aio.Request
}

// aioEntries is how many requests are in the kernel at most.
const aioEntries = 256

// newAIO starts the queue of v on k, for the file of fd.
func newAIO(v *file, k kernelAIO, fd int) *queueAIO {
	q := &queueAIO{v: v, k: k, fd: uint32(fd), ended: make(chan struct{})}
	slots := make([]*aioSlot, aioEntries)
	for i := range slots {
		slots[i] = &aioSlot{index: i}
	}
	q.free = append(q.free, slots...)
	go q.run(slots)
	return q
}

// run is the life of the goroutine that completes.
func (q *queueAIO) run(slots []*aioSlot) {
	defer close(q.ended)
	var row Row
	events := make([]aio.Event, 64)
	for {
		n, err := q.k.Wait(events)
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			q.complete(&row, slots[e.Data], e.Res)
		}
		row.End()
	}
}

// submit hands what is left of r to the kernel. It returns false where a worker must do it.
func (q *queueAIO) submit(r *Request) bool {
	q.mu.Lock()
	n := len(q.free)
	if n == 0 {
		q.mu.Unlock()
		return false
	}
	s := q.free[n-1]
	q.free = q.free[:n-1]
	q.prepare(s, r)
	q.mu.Unlock()
	if q.k.Submit(&s.req) == nil {
		return true
	}
	q.release(s)
	return false
}

// prepare asks for what is left of r. mu is held.
func (q *queueAIO) prepare(s *aioSlot, r *Request) {
	s.r = r
	k := fillIovecs(s.iov[:], r.Bufs, r.done)
	s.flags = q.v.writeFlags(r)
	s.req = aio.Request{Data: uint64(s.index), Op: aio.OpRead, FD: q.fd, Offset: r.Offset + r.done,
		Addr: uint64(uintptr(unsafe.Pointer(s.iov[0].Base))), Len: s.iov[0].Len}
	if k > 1 {
		s.req.Op = aio.OpReadv
		s.req.Addr, s.req.Len = uint64(uintptr(unsafe.Pointer(&s.iov[0]))), uint64(k)
	}
	if r.Op == OpWrite {
		s.req.Op++ // OpWrite and OpWritev come after their reads
	}
	s.req.SetFlags(s.flags | unix.RWF_NOWAIT)
}

// complete takes the result of a slot's request.
func (q *queueAIO) complete(row *Row, s *aioSlot, res int64) {
	r, flags := q.release(s)
	if !q.v.took(row, r, res, flags) && !q.submit(r) {
		q.v.pool.Submit(r)
	}
}

// release frees a slot, and tells whose it was.
func (q *queueAIO) release(s *aioSlot) (r *Request, flags int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, flags = s.r, s.flags
	clear(s.iov[:])
	s.r = nil
	q.free = append(q.free, s)
	return r, flags
}

// close ends the queue. Nothing is in flight, and nothing is submitted any more.
func (q *queueAIO) close() {
	q.k.Close()
	<-q.ended
}
