package blockdev

import (
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// aioWrites submits the writes to a regular file: io_submit waits where the file system is frozen, as for a
// snapshot, RWF_NOWAIT or not. So whoever is on duty submits them as work that may block (see duty): who hangs
// there is replaced, and the writes behind it wait for the same. io_uring doesn't wait there.
type aioWrites struct {
	q     *queueAIO
	drain func() // beginAll
	apart func() // the same, where no ring's requests wait with it

	mu    sync.Mutex
	queue requestQueue
	busy  bool // somebody takes what is in the queue, or is about to
	later *time.Timer
}

func newAIOWrites(q *queueAIO) *aioWrites {
	w := &aioWrites{q: q}
	w.drain = w.beginAll
	w.apart = func() { aio.Apart(w.drain) }
	return w
}

// submit has r submitted soon. The caller does so only in a program that receives no packets: else it may be one who
// does and can't be on duty, as behind a capture or a fault, or one of the RNIC's timers.
func (w *aioWrites) submit(r *Request) {
	w.mu.Lock()
	w.queue.push(r)
	busy := w.busy
	w.busy = true
	w.mu.Unlock()
	switch {
	case busy || duty.Offer(w):
	case duty.HasReceivers():
		go w.apart()
	default:
		w.Do()
	}
}

// Do is duty.Task's.
func (w *aioWrites) Do() {
	if !aio.ApartHere(w.drain) {
		go w.apart()
	}
}

// beginAll submits what is in the queue.
func (w *aioWrites) beginAll() {
	for r := w.next(); r != nil; r = w.next() {
		if !w.drop(r) {
			w.q.begin(r)
		}
	}
}

// Decline is duty.Task's: nobody on duty has time, and workers write.
func (w *aioWrites) Decline() {
	for r := w.next(); r != nil; r = w.next() {
		if !w.drop(r) {
			w.q.v.pool.Submit(r)
		}
	}
}

// next takes a request; nil where there is none, or those that there are have to wait.
func (w *aioWrites) next() *Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	if pause := w.q.v.sentry.pause(); pause > 0 && !w.queue.empty() {
		w.takeLater(pause)
		return nil
	}
	r := w.queue.pop()
	w.busy = r != nil
	return r
}

// takeLater has what is in the queue taken after a pause. w.mu is held.
func (w *aioWrites) takeLater(pause time.Duration) {
	if w.later == nil {
		w.later = time.AfterFunc(pause, w.apart)
	} else {
		w.later.Reset(pause)
	}
}

// drop ends r if nobody wants it any more.
func (w *aioWrites) drop(r *Request) bool {
	if !r.unwanted() {
		return false
	}
	w.q.v.finish(r, ErrUnwanted)
	return true
}
