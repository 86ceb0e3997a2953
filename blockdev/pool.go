package blockdev

import (
	"sync"
	"time"
)

// pool runs requests that block on goroutines of its own: started when there is work for
// them, as many as max, and gone after they had none for a while.
type pool struct {
	run func(*worker, *Request)
	max int

	mu      sync.Mutex
	queue   requestQueue // what no worker was free for
	idle    []*worker    // the one that ended its work last comes first: the others may go
	running int
	closed  bool
	gone    sync.WaitGroup
}

// Workers block in the kernel, one thread each. More than this many requests at once don't
// make a device faster that has no io_uring.
const (
	poolSize = 64
	poolIdle = 5 * time.Second
)

// worker is a goroutine of the pool with what it needs for a request.
type worker struct {
	wake   chan *Request // holds one; nil says that the pool is closed
	iov    iovecs
	bounce []byte
}

func newPool(size int, run func(*worker, *Request)) *pool {
	return &pool{run: run, max: size, idle: make([]*worker, 0, size)}
}

// submit has r run soon. It does not block.
func (p *pool) submit(r *Request) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		w.wake <- r
		return
	}
	if p.running == p.max {
		p.queue.push(r)
		p.mu.Unlock()
		return
	}
	p.running++
	p.gone.Add(1)
	p.mu.Unlock()
	go p.work(&worker{wake: make(chan *Request, 1)}, r)
}

// work is a worker's life.
func (p *pool) work(w *worker, r *Request) {
	defer p.gone.Done()
	timer := time.NewTimer(poolIdle)
	defer timer.Stop()
	for r != nil {
		p.run(w, r)
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

// next gives the worker a request that waits, or puts it among the idle.
func (p *pool) next(w *worker) *Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.queue.pop(); r != nil {
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

// retire takes an idle worker out. It returns false where a request is on its way to it.
func (p *pool) retire(w *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, x := range p.idle {
		if x == w {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			p.running--
			return true
		}
	}
	return false
}

// close ends the workers. Nothing is submitted any more, and all that was is complete or
// about to be.
func (p *pool) close() {
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

// requestQueue is a list through the requests themselves.
type requestQueue struct {
	first, last *Request
}

func (q *requestQueue) push(r *Request) {
	r.next = nil
	if q.first == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
}

func (q *requestQueue) pop() *Request {
	r := q.first
	if r != nil {
		q.first, r.next = r.next, nil
	}
	return r
}

// take gives the whole list away, linked.
func (q *requestQueue) take() *Request {
	r := q.first
	q.first, q.last = nil, nil
	return r
}
