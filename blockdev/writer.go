package blockdev

import (
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// writer writes a file through the page cache, where a write can't be done at once by whoever has
// it. It is one goroutine at a time, since file systems let one write to a file at a time: whoever
// is on duty for what came to an idle writer, its own for what comes meanwhile and where nobody is
// on duty. What it has done in a row it answers in a Row: nobody need be woken, and nothing sent,
// for each by itself.
type writer struct {
	v    *file
	doIt func()        // write
	wake chan struct{} // room for one
	gone chan struct{}

	turn sync.Mutex // of whoever writes, and guards what follows
	s    scratch
	row  Row
	done []written
	late []*Request

	mu     sync.Mutex
	queue  requestQueue
	state  writerState
	shy    int  // how often the writer's own goroutine comes first
	rest   bool // after a standstill: the writer's own goroutine goes on, in a while
	closed bool
}

// writerState says who is to write.
type writerState uint8

const (
	writerIdle    writerState = iota // nobody: there is nothing to do
	writerOffered                    // whoever is on duty
	writerHelped                     // someone on duty does
	writerAwake                      // the writer's own goroutine
)

// A writer answers when it has done this much, or has nothing left to do.
const (
	writerRow   = 16
	writerBytes = 64 << 10
)

// writerShy is how often nobody on duty is asked after one of them was held up.
const writerShy = 1000

// written is a request and what came of it.
type written struct {
	r   *Request
	err error
}

// newWriter starts the writer of v.
func newWriter(v *file) *writer {
	w := &writer{v: v, wake: make(chan struct{}, 1), gone: make(chan struct{}),
		done: make([]written, 0, writerRow), late: make([]*Request, 0, writerRow)}
	w.doIt = w.write
	go w.run()
	return w
}

// submit has r, a write, done soon. It doesn't block.
func (w *writer) submit(r *Request) {
	w.mu.Lock()
	w.queue.push(r)
	if w.state != writerIdle {
		w.mu.Unlock()
		return
	}
	if w.shy > 0 {
		w.shy--
		w.rouse()
		return
	}
	w.state = writerOffered
	w.mu.Unlock()
	if !duty.Offer(w) {
		w.Decline()
	}
}

// rouse wakes the writer's goroutine, which sleeps. mu is held, and given up.
func (w *writer) rouse() {
	w.state = writerAwake
	w.mu.Unlock()
	w.wake <- struct{}{}
}

// Do is duty.Task's: it writes a row, and leaves the rest to the writer's goroutine, and all where requests to a ring
// would wait with it.
func (w *writer) Do() {
	w.mu.Lock()
	w.state = writerHelped
	w.mu.Unlock()
	began := time.Now()
	if !aio.ApartHere(w.doIt) {
		w.Decline()
		return
	}
	long := time.Since(began) >= duty.Patience
	w.mu.Lock()
	if long {
		w.shy = writerShy
	}
	if w.queue.first != nil || w.closed {
		w.rouse()
		return
	}
	w.state = writerIdle
	w.mu.Unlock()
}

// Decline is duty.Task's: nobody on duty has time.
func (w *writer) Decline() {
	w.mu.Lock()
	w.rouse()
}

// run is the life of the goroutine.
func (w *writer) run() {
	defer close(w.gone)
	for range w.wake {
		for w.more() {
			aio.Apart(w.doIt)
		}
		if w.over() {
			return
		}
	}
}

// more tells whether there is something to write. If not, the goroutine is about to sleep.
func (w *writer) more() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue.first == nil {
		w.state = writerIdle
		return false
	}
	if w.rest {
		w.mu.Unlock()
		time.Sleep(w.v.sentry.pause()) //nolint:forbidigo // what is waited for may not come
		w.mu.Lock()
		w.rest = false
	}
	return true
}

// over tells whether the goroutine is to end.
func (w *writer) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// write writes a row, and answers it.
func (w *writer) write() {
	w.turn.Lock()
	defer w.turn.Unlock()
	w.transfer()
	w.answer()
	for _, r := range w.late {
		w.v.commit(r)
	}
	clear(w.done)
	clear(w.late)
}

// transfer writes what makes a row, and leaves it in done.
func (w *writer) transfer() {
	w.done = w.done[:0]
	for n := int64(0); len(w.done) < writerRow && n < writerBytes; {
		r := w.next()
		if r == nil {
			break
		}
		n += r.Length
		if r.unwanted() {
			w.done = append(w.done, written{r, ErrUnwanted})
			continue
		}
		if durable, err := w.v.transfer(&w.s, r); durable || err != nil {
			w.done = append(w.done, written{r, err})
		} else {
			w.v.pool.Submit(r) // to be made durable, while others are written
		}
	}
}

// answer answers what was written. It leaves in late what a sync that failed since may have lost.
func (w *writer) answer() {
	w.late = w.late[:0]
	for _, d := range w.done {
		if d.err == nil && w.v.commits.late(d.r) {
			w.late = append(w.late, d.r)
			continue
		}
		w.v.finishIn(&w.row, d.r, d.err)
	}
	w.row.End()
}

// next takes a request; nil where there is none, or those that there are have to wait.
func (w *writer) next() *Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = w.rest || w.queue.first != nil && w.v.sentry.pause() > 0
	if w.rest {
		return nil
	}
	return w.queue.pop()
}

// close ends the goroutine. Everything that was submitted is answered, and nothing is submitted any more.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	if w.state == writerIdle {
		w.rouse()
	} else {
		w.mu.Unlock() // who answered the last request is about to look
	}
	<-w.gone
}
