package tcp

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/internal/mem"
)

// waiters are the commands of a listener that wait for data memory, oldest first, so that small
// ones don't pass a large one for ever.
type waiters struct {
	count atomic.Int32 // also of one that is about to be queued
	mu    sync.Mutex
	queue []*request
}

// wait queues r, which wants n bytes. It returns memory instead if some came free: counting
// itself before this last try, it can't miss memory that is freed at the same time.
func (w *waiters) wait(r *request, n int, arena *mem.Arena) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count.Add(1)
	if len(w.queue) == 0 {
		if b := arena.Alloc(n); b != nil {
			w.count.Add(-1)
			return b
		}
	}
	r.want = n
	w.queue = append(w.queue, r)
	return nil
}

// serve hands memory to the oldest waiters while there is some. It is called after each Free.
func (w *waiters) serve(arena *mem.Arena) {
	for w.count.Load() > 0 {
		r := w.first(arena)
		if r == nil {
			return
		}
		r.Resume()
	}
}

// first takes the oldest waiter off the queue with memory for it, or returns nil.
func (w *waiters) first(arena *mem.Arena) *request {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return nil
	}
	r := w.queue[0]
	if r.memory = arena.Alloc(r.want); r.memory == nil {
		return nil
	}
	w.queue = slices.Delete(w.queue, 0, 1)
	w.count.Add(-1)
	return r
}

// drop takes the waiters of an ending connection off the queue.
func (w *waiters) drop(c *targetConn) []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	var dropped []*request
	w.queue = slices.DeleteFunc(w.queue, func(r *request) bool {
		if r.conn != c {
			return false
		}
		dropped = append(dropped, r)
		w.count.Add(-1)
		return true
	})
	return dropped
}
