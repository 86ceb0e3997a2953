package blockdev

import (
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// aioWrites submits the writes to a regular file: io_submit blocks while the file system is frozen, as for a snapshot,
// even with RWF_NOWAIT. So attendants on duty submit them, as work that may block (see package duty): an attendant that
// hangs there is replaced, and the writes behind it wait for the same thing. io_uring doesn't block there.
type aioWrites struct {
	q     *queueAIO
	drain func() // beginAll
	apart func() // drain, in a goroutine where no ring's requests wait with it

	mu    sync.Mutex
	queue requestQueue
	busy  bool // somebody is emptying the queue, or is about to
	later *time.Timer
}

func newAIOWrites(q *queueAIO) *aioWrites {
	w := &aioWrites{q: q}
	w.drain = w.beginAll
	w.apart = func() { aio.Apart(w.drain) }
	return w
}

// submit has r submitted soon. The caller does so itself only in a program that receives no packets: otherwise it may
// be a goroutine that receives packets but can't be on duty, for example behind a capture or a fault, or one of the
// RNIC's timers.
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

// Do implements duty.Task.
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

// Decline implements duty.Task: nobody on duty has time, so workers write.
func (w *aioWrites) Decline() {
	for r := w.next(); r != nil; r = w.next() {
		if !w.drop(r) {
			w.q.v.pool.Submit(r)
		}
	}
}

// next takes a request from the queue; nil if there is none, or if the queue has to wait.
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

// takeLater has the queue emptied after a pause. w.mu is held.
func (w *aioWrites) takeLater(pause time.Duration) {
	if w.later == nil {
		w.later = time.AfterFunc(pause, w.apart)
	} else {
		w.later.Reset(pause)
	}
}

// drop completes r if it is no longer wanted.
func (w *aioWrites) drop(r *Request) bool {
	if !r.unwanted() {
		return false
	}
	w.q.v.finish(r, ErrUnwanted)
	return true
}
