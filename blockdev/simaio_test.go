package blockdev

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// simAIO is asynchronous I/O on a simDisk.
type simAIO struct {
	d        *simDisk
	mu       sync.Mutex
	arrived  sync.Cond
	events   []aio.Event
	inFlight int
	closed   bool
}

func newSimAIO(d *simDisk) *simAIO {
	a := &simAIO{d: d}
	a.arrived.L = &a.mu
	return a
}

// Submit refuses the sixth request.
func (a *simAIO) Submit(r aio.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inFlight == 5 {
		return unix.EAGAIN
	}
	a.inFlight++
	a.d.enqueue(&simOp{simTransfer, r.Offset, int64(r.Len), func() { a.complete(&r) }})
	return nil
}

// complete executes a request.
func (a *simAIO) complete(r *aio.Request) {
	op, vector := OpRead, r.Op == aio.OpReadv || r.Op == aio.OpWritev
	if r.Op == aio.OpWrite || r.Op == aio.OpWritev {
		op = OpWrite
	}
	a.d.queued(op, vector, r.Addr, r.Len, r.Offset, r.Flags()&^unix.RWF_NOWAIT, func(res int64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.events = append(a.events, aio.Event{Data: r.Data, Res: res})
		a.arrived.Signal()
	})
}

func (a *simAIO) Wait(events []aio.Event) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.events) == 0 {
		if a.closed {
			return 0
		}
		a.arrived.Wait()
	}
	return a.take(events)
}

func (a *simAIO) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.arrived.Signal()
}

func (a *simAIO) Ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.events) > 0
}

func (a *simAIO) Take(events []aio.Event) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.take(events)
}

// take takes what has arrived. mu is held.
func (a *simAIO) take(events []aio.Event) int {
	n := copy(events, a.events)
	a.events = a.events[n:]
	a.inFlight -= n
	return n
}
