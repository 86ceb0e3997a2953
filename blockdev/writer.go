package blockdev

import (
	"runtime"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// writer writes a file through the page cache, where a write can't be done at once by whoever has
// it. It is one goroutine at a time, since file systems let one write to a file at a time: whoever
// is on duty, or its own where nobody is, or rows take long. What comes while a row is written is for
// its own, too, where that can have a processor to itself. What it has done in a row it answers in a
// Row: nobody need be woken, and nothing sent, for each by itself.
type writer struct {
	v    *file
	doIt func()        // write
	wake chan struct{} // room for one
	gone chan struct{}
	lent bool // those on duty write what comes meanwhile, too

	turn sync.Mutex // of whoever writes, and guards what follows
	s    scratch
	row  Row
	done []written
	late []*Request

	mu     sync.Mutex
	queue  requestQueue
	busy   bool // it is somebody's, or offered
	shy    int  // how often the writer's own goroutine comes first
	rest   bool // after a standstill: the writer's own goroutine goes on, in a while
	closed bool
}

// A writer answers when it has done this much, or has nothing left to do.
const (
	writerRow   = 16
	writerBytes = 64 << 10
)

// writerProcs is how many processors those who receive packets and their hosts on the same machine keep busy. Where
// there are no more, the writer's own goroutine would take turns with them, and what is written would go to and fro
// between the processors' caches.
const writerProcs = 2

// writerBrief is how long a row takes at most where those on duty write the next one: packets wait for it.
const writerBrief = 500 * time.Microsecond

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

// offer leaves the next row to those on duty. It returns false, and leaves it to the caller, where nobody is, or one was
// held up lately. mu is held, and given up.
func (w *writer) offer() bool {
	shy := w.shy > 0
	if shy {
		w.shy--
	}
	w.mu.Unlock()
	return !shy && duty.Offer(w)
}

// rouse leaves the next row to the writer's own goroutine, which sleeps.
func (w *writer) rouse() { w.wake <- struct{}{} }

// Do is duty.Task's: it writes a row, and nothing where requests to a ring would wait with it.
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

// Decline is duty.Task's: nobody on duty has time.
func (w *writer) Decline() { w.rouse() }

// passOn is called after a row that began then. It returns false where what is left is for the writer's own goroutine;
// else the caller is no longer the writer.
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

// run is the life of the goroutine.
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

// more tells whether there is something to write. If not, the goroutine is about to sleep.
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

// over tells whether the goroutine is to end.
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
	w.rest = w.rest || !w.queue.empty() && w.v.sentry.pause() > 0
	if w.rest {
		return nil
	}
	return w.queue.pop()
}

// close ends the goroutine. Everything that was submitted is answered, and nothing is submitted any more.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	idle := !w.busy // else who answered the last request is about to look
	w.busy = true
	w.mu.Unlock()
	if idle {
		w.rouse()
	}
	<-w.gone
}
