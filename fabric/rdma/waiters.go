package rdma

import (
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/internal/mem"
)

// waiters are requests that wait for data memory, oldest first: a large one isn't passed by
// small ones for ever.
type waiters struct {
	count atomic.Int32
	mu    sync.Mutex
	list  []*targetRequest
}

// add queues r, or returns memory for it where some came free meanwhile. The count goes up
// before that last try, so that whoever frees memory after it sees r.
func (w *waiters) add(r *targetRequest, a *mem.Arena) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count.Add(1)
	if b := a.Alloc(r.want); b != nil {
		w.count.Add(-1)
		return b
	}
	w.list = append(w.list, r)
	return nil
}

// wake serves the oldest requests as far as memory goes. It is called whenever memory was
// freed.
func (w *waiters) wake(a *mem.Arena) {
	for w.count.Load() > 0 {
		r := w.serve(a)
		if r == nil {
			return
		}
		r.Resume()
	}
}

func (w *waiters) serve(a *mem.Arena) *targetRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) == 0 {
		return nil
	}
	r := w.list[0]
	b := a.Alloc(r.want)
	if b == nil {
		return nil
	}
	w.list = w.list[:copy(w.list, w.list[1:])]
	w.count.Add(-1)
	r.setBuffer(b)
	return r
}
