package blockdev

import (
	"runtime"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// writer writes a file through the page cache, for writes that can't be done at once by the goroutine that has them.
// Only one goroutine writes at a time, since file systems allow one write to a file at a time: an attendant on duty
// (see package duty), or the writer's own goroutine if nobody is on duty or rows take long. Requests that arrive while
// a row is written are also left to the writer's own goroutine, if it can have a processor to itself. Requests that
// were done together are answered in one Row, so that nobody needs to be woken, and nothing sent, for each separately.
type writer struct {
	v    *file
	doIt func()        // write
	wake chan struct{} // room for one
	gone chan struct{}
	lent bool // attendants on duty also write what arrives meanwhile

	turn sync.Mutex // held by whoever writes; guards the following
	s    scratch
	row  Row
	done []written
	late []*Request

	mu     sync.Mutex
	queue  requestQueue
	busy   bool // somebody is writing, or will, or it is offered
	shy    int  // how many more rows go to the writer's own goroutine first
	rest   bool // after a standstill: the writer's own goroutine continues after a pause
	closed bool
}

// A writer answers when it has done this much, or has nothing left to do.
const (
	writerRow   = 16
	writerBytes = 64 << 10
)

// writerProcs is how many processors are kept busy by the goroutines that receive packets and by hosts on the same
// machine. If there are no more than that, the writer's own goroutine would take turns with them, and the data would
// move back and forth between the processors' caches.
const writerProcs = 2

// writerBrief is the longest that a row may take for attendants on duty to write the next one, too: packets wait for
// it.
const writerBrief = 500 * time.Microsecond

// writerShy is for how many rows attendants on duty aren't asked after one of them was held up.
const writerShy = 1000

// written is a request and its result.
type written struct {
	r   *Request
	err error
}

// newWriter starts the writer of v.
func newWriter(v *file) *writer {
	w := &writer{v: v, wake: make(chan struct{}, 1), gone: make(chan struct{}),
		lent: min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) <= writerProcs,
		done: make([]written, 0, writerRow), late: make([]*Request, 0, writerRow)}
	w.doIt = w.write
	go w.run()
	return w
}

// submit has r, a write, done soon. It doesn't block.
func (w *writer) submit(r *Request) {
	w.mu.Lock()
	w.queue.push(r)
	if w.busy {
		w.mu.Unlock()
		return
	}
	w.busy = true
	if !w.offer() {
		w.rouse()
	}
}

// offer offers the next row to attendants on duty. It returns false, and leaves the row to the caller, if there are
// none, or one was held up recently. It is called with mu held, and unlocks it.
func (w *writer) offer() bool {
	shy := w.shy > 0
	if shy {
		w.shy--
	}
	w.mu.Unlock()
	return !shy && duty.Offer(w)
}

// rouse leaves the next row to the writer's own goroutine, which is asleep.
func (w *writer) rouse() { w.wake <- struct{}{} }

// Do implements duty.Task: it writes a row, or nothing if requests to a ring would wait with it.
func (w *writer) Do() {
	began := time.Now()
	if !aio.ApartHere(w.doIt) {
		w.rouse()
		return
	}
	if time.Since(began) >= duty.Patience {
		w.mu.Lock()
		w.shy = writerShy
		w.mu.Unlock()
	}
	if !w.passOn(began) {
		w.rouse()
	}
}

// Decline implements duty.Task: nobody on duty has time.
func (w *writer) Decline() { w.rouse() }

// passOn is called after a row that began at the given time. It returns false if the rest is for the writer's own
// goroutine; otherwise the caller is no longer the writer.
func (w *writer) passOn(began time.Time) bool {
	brief := time.Since(began) < writerBrief
	w.mu.Lock()
	if w.queue.empty() && !w.closed {
		w.busy = false
		w.mu.Unlock()
		return true
	}
	if !w.lent || !brief || w.rest || w.closed {
		w.mu.Unlock()
		return false
	}
	return w.offer()
}

// run is the loop of the writer's own goroutine.
func (w *writer) run() {
	defer close(w.gone)
	for range w.wake {
		for w.more() {
			began := time.Now()
			aio.Apart(w.doIt)
			if w.passOn(began) {
				break
			}
		}
		if w.over() {
			return
		}
	}
}

// more reports whether there is something to write. If not, the goroutine is about to sleep.
func (w *writer) more() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue.empty() {
		w.busy = false
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

// over reports whether the goroutine must end.
func (w *writer) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed && !w.busy
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

// transfer writes the requests of a row, and leaves them in done.
func (w *writer) transfer() {
	w.done = w.done[:0]
	for n := int64(0); len(w.done) < writerRow && n < writerBytes; {
		r := w.next()
		if r == nil {
			break
		}
		if !w.v.ranges.lock(r) {
			continue // it comes back
		}
		n += r.Length
		durable, err := true, ErrUnwanted
		if !r.unwanted() {
			durable, err = w.v.transfer(&w.s, r)
		}
		w.v.ranges.unlock(r)
		if durable || err != nil {
			w.done = append(w.done, written{r, err})
		} else {
			w.v.pool.Submit(r) // to be made durable, while others are written
		}
	}
}

// answer answers what was written. It leaves in late the requests whose data a later failed sync may have lost.
func (w *writer) answer() {
	w.late = w.late[:0]
	for _, d := range w.done {
		switch {
		case d.err != nil:
			w.v.finishIn(&w.row, d.r, d.err)
		case w.v.commits.answers(d.r):
			w.v.finishIn(&w.row, d.r, nil)
			w.v.commits.answered()
		default:
			w.late = append(w.late, d.r)
		}
	}
	w.row.End()
}

// next takes a request from the queue; nil if there is none, or if the queue has to wait.
func (w *writer) next() *Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = w.rest || !w.queue.empty() && w.v.sentry.pause() > 0
	if w.rest {
		return nil
	}
	return w.queue.pop()
}

// close ends the goroutine. Everything submitted has been answered, and nothing more is submitted.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	idle := !w.busy // else the one who answered the last request is about to look
	w.busy = true
	w.mu.Unlock()
	if idle {
		w.rouse()
	}
	<-w.gone
}
