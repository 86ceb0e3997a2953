package blockdev

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// Pool runs requests that block on goroutines of its own: they are started when there is work for them, up to the
// pool's size, and end after they had none for a while. Each has an S to work with.
type Pool[S any] struct {
	run func(*S, *Request)
	max int

	mu      sync.Mutex
	queue   requestQueue // requests for which no worker was free
	queued  int
	idle    []*worker[S] // last in, first out, so that surplus workers can end
	running int
	closed  bool
	gone    sync.WaitGroup

	ending atomic.Int64 // workers in End
}

// poolIdle is how long a worker waits for work.
const poolIdle = 5 * time.Second

// worker is a goroutine of the pool.
type worker[S any] struct {
	wake    chan *Request // holds one; nil says that the pool is closed
	scratch S
}

// NewPool returns a pool of at most size goroutines.
func NewPool[S any](size int, run func(*S, *Request)) *Pool[S] {
	return &Pool[S]{run: run, max: size, idle: make([]*worker[S], 0, size)}
}

// Submit has r run soon. It does not block.
func (p *Pool[S]) Submit(r *Request) {
	p.mu.Lock()
	if p.running == p.max && len(p.idle) == 0 || int64(p.queued) < p.ending.Load() {
		p.queue.push(r)
		p.queued++
		p.mu.Unlock()
		return
	}
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		w.wake <- r
		return
	}
	p.running++
	p.gone.Add(1)
	p.mu.Unlock()
	go p.work(&worker[S]{wake: make(chan *Request, 1)}, r)
}

// End completes r, which the calling worker ran, as the last thing that the worker does for it. Requests that are
// submitted meanwhile, most likely by r's Complete, are left to this worker, which is free sooner than another would
// wake.
func (p *Pool[S]) End(r *Request, err error) {
	p.ending.Add(1)
	r.End(err)
	p.ending.Add(-1)
}

// work is the loop of a worker.
func (p *Pool[S]) work(w *worker[S], r *Request) {
	defer p.gone.Done()
	timer := time.NewTimer(poolIdle)
	defer timer.Stop()
	run := func() { p.run(&w.scratch, r) }
	for r != nil {
		aio.Apart(run)
		if r = p.next(w); r != nil {
			continue
		}
		timer.Reset(poolIdle)
		select {
		case r = <-w.wake:
		case <-timer.C:
			if !p.retire(w) {
				r = <-w.wake
			}
		}
	}
}

// next returns a request that waits, or marks the worker as idle.
func (p *Pool[S]) next(w *worker[S]) *Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.queue.pop(); r != nil {
		p.queued--
		return r
	}
	if p.closed {
		p.running--
		w.wake <- nil
		return nil
	}
	p.idle = append(p.idle, w)
	return nil
}

// retire removes an idle worker. It returns false if a request is on its way to it.
func (p *Pool[S]) retire(w *worker[S]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.idle, w)
	if i < 0 {
		return false
	}
	p.idle = slices.Delete(p.idle, i, i+1)
	p.running--
	return true
}

// Close ends the workers. Nothing more is submitted, and every request submitted has completed or is about to.
func (p *Pool[S]) Close() {
	p.mu.Lock()
	p.closed = true
	for _, w := range p.idle {
		p.running--
		w.wake <- nil
	}
	p.idle = p.idle[:0]
	p.mu.Unlock()
	p.gone.Wait()
}
