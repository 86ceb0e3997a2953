package tcp

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
)

const (
	// flushBytes is how much data may accumulate while a batch is parsed before it is sent
	// without waiting for the end of the batch.
	flushBytes = 256 << 10
	// maxRounds is how often one goroutine goes on to send what others queued meanwhile, before
	// the connection's own goroutine takes over.
	maxRounds = 8
	// sendTimeout is how long a peer may take less than leastTaken while we wait for it. A shorter keep-alive timeout ends
	// the connection sooner.
	sendTimeout = 30 * time.Second
	// leastTaken is how many bytes the slowest networks carry in that time. A peer that takes less holds what others wait for.
	leastTaken = 128 << 10
)

// message is one or more PDUs to send.
type message interface {
	// encode appends the message's next PDUs to b and reports whether that was all; false means
	// that b is full, and that encode must be called again with an empty one.
	encode(b *batch) bool
	// written is called when the kernel has taken every byte, or the connection is dead. It is
	// called once, without locks.
	written()
}

// writer sends messages in the order in which they are posted. A goroutine that posts while none is
// sending becomes the sender, also for the messages of others.
type writer struct {
	conn socket.Conn

	mu       sync.Mutex
	pending  []message
	bytes    int  // data in pending
	held     bool // the reader is in a batch, and will flush
	inRow    bool // a volume is giving a row of answers, whose end flushes
	flushing bool // some goroutine is the sender
	err      error
	stall    time.Duration // how long the peer may take less than leastTaken
	idle     sync.Cond     // signalled when flushing ends
	sealed   bool          // no more messages are taken
	dead     atomic.Bool   // nothing can be sent any more

	// The following fields belong to the sender.
	cur   []message
	next  int // cur[:next] is encoded
	told  int // written was called for cur[:told]
	b     batch
	taken bool // the kernel took something in this flush
	took  int  // bytes that it took since the current time limit began
	tally tally
	stats *DirectionCounters

	tap    Tap // may be nil
	tapped [][]byte

	takeOver chan struct{} // wakes the goroutine that waits for the peer's window
	waitFn   func() bool
	waitErr  unix.Errno
	waitN    int
}

func newWriter(c socket.Conn, stats *DirectionCounters) *writer {
	w := &writer{conn: c, stall: sendTimeout, stats: stats, takeOver: make(chan struct{}, 1)}
	w.idle.L = &w.mu
	w.b.stage = make([]byte, 0, stageSize)
	w.waitFn = w.sendWhenReady
	return w
}

// post queues m, which carries size bytes of data, and sends it unless another goroutine will.
// After seal or kill, it calls m's written at once, and nothing is sent.
func (w *writer) post(m message, size int) {
	w.mu.Lock()
	if !w.add(m, size) {
		w.mu.Unlock()
		m.written()
		return
	}
	w.unlockAndSend()
}

// add queues m; it returns false after seal. mu is held.
func (w *writer) add(m message, size int) bool {
	if w.sealed {
		return false
	}
	w.pending = append(w.pending, m)
	w.bytes += size
	return true
}

// unlockAndSend releases mu and becomes the sender if one is needed. It reports whether the kernel
// took something.
func (w *writer) unlockAndSend() bool {
	if w.flushing || len(w.pending) == 0 || ((w.held || w.inRow) && w.bytes < flushBytes) {
		w.mu.Unlock()
		return false
	}
	w.flushing = true
	w.mu.Unlock()
	return w.flush(false)
}

// hold makes posts wait for release.
func (w *writer) hold() {
	w.mu.Lock()
	w.held = true
	w.mu.Unlock()
}

// release ends hold, and sends what was posted meanwhile. It reports whether the kernel took some
// of it from this goroutine.
func (w *writer) release() bool {
	w.mu.Lock()
	w.held = false
	return w.unlockAndSend()
}

// beginRow makes posts wait for endRow. It returns false if those of another row already wait, or after seal.
func (w *writer) beginRow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inRow || w.sealed {
		return false
	}
	w.inRow = true
	return true
}

// endRow ends beginRow, and sends what was posted meanwhile.
func (w *writer) endRow() {
	w.mu.Lock()
	w.inRow = false
	w.unlockAndSend()
}

// flush sends until nothing is pending. wait says that the caller may wait for the peer's window;
// otherwise serve does the waiting. It reports whether the kernel took something.
func (w *writer) flush(wait bool) bool {
	w.taken = false
	for round := 0; ; round++ {
		ok := w.drain(wait)
		w.tally.publish(w.stats)
		taken := w.taken
		if !ok {
			w.takeOver <- struct{}{}
			return taken
		}
		w.mu.Lock()
		if len(w.pending) == 0 {
			w.flushing = false
			w.idle.Broadcast()
			w.mu.Unlock()
			return taken
		}
		w.cur, w.pending = w.pending, w.cur[:0]
		w.next, w.told, w.bytes = 0, 0, 0
		w.mu.Unlock()
		if round >= maxRounds && !wait {
			w.takeOver <- struct{}{}
			return taken
		}
	}
}

// drain sends what is in the batch and in cur. It returns false if the socket is full.
func (w *writer) drain(wait bool) bool {
	for {
		if w.b.empty() {
			w.fill()
		}
		if w.b.empty() {
			if w.next == len(w.cur) && w.told == w.next {
				return true
			}
			continue
		}
		if w.dead.Load() {
			w.b.sent(w.b.length())
			continue
		}
		n, err := w.send(wait)
		switch {
		case err == nil:
			w.taken = true
			w.took += n
			w.tally.calls++
			w.tally.bytes += uint64(n)
			w.b.sent(n)
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			w.tally.blocked++
			return false
		default:
			w.fail(err)
		}
	}
}

// fill calls written for the messages whose last bytes were in the batch, and encodes the next ones.
func (w *writer) fill() {
	for ; w.told < w.next; w.told++ {
		m := w.cur[w.told]
		w.cur[w.told] = nil
		m.written()
	}
	w.b.reset()
	for w.next < len(w.cur) && w.cur[w.next].encode(&w.b) {
		w.next++
	}
	w.tally.add(&w.b)
	if w.tap != nil && !w.b.empty() && !w.dead.Load() {
		w.tapped = pieces(w.tapped, w.b.unsent())
		w.tap.Sent(w.tapped)
	}
}

// send makes one send call of the batch; wait says that it may wait for the peer's window.
func (w *writer) send(wait bool) (n int, err error) {
	var errno unix.Errno
	if wait {
		err = w.sendWaiting()
		n, errno = w.waitN, w.waitErr
	} else {
		n, errno = w.sendNow()
	}
	if err == nil && errno != 0 {
		err = errno
	}
	return n, err
}

// sendWaiting makes the send call as soon as the socket has room. The error says why it didn't.
func (w *writer) sendWaiting() error {
	w.waitN, w.waitErr = 0, unix.EAGAIN
	w.mu.Lock()
	if w.took >= leastTaken {
		w.took = 0
		w.expire(w.stall)
	}
	stall := w.stall
	w.mu.Unlock()
	err := w.conn.WhenWritable(w.waitFn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: the peer took %d bytes in %v", ErrStalled, w.took, stall)
	}
	return err
}

func (w *writer) sendWhenReady() bool {
	w.waitN, w.waitErr = w.sendNow()
	return w.waitErr != unix.EAGAIN
}

// sendNow sends from the batch without waiting.
func (w *writer) sendNow() (int, unix.Errno) {
	return w.conn.Send(w.b.unsent(), w.next < len(w.cur), w.b.onDemand)
}

// seal makes m the last message.
func (w *writer) seal(m message) {
	w.mu.Lock()
	w.add(m, 0)
	w.sealed = true
	w.held, w.inRow = false, false
	w.unlockAndSend()
}

// fail makes the connection dead because sending failed, and wakes the reader, which ends it.
func (w *writer) fail(err error) {
	w.kill(err)
	_ = w.conn.CloseWrite()
	_ = w.conn.CloseRead()
}

// kill makes further sends succeed without effect, so that written is soon called for every message.
func (w *writer) kill(err error) {
	w.mu.Lock()
	w.sealed = true
	if !w.dead.Swap(true) {
		w.err = err
	}
	w.mu.Unlock()
}

// sendError returns why sending failed, or nil.
func (w *writer) sendError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// serve is the connection's second goroutine: it sends while the peer's window is closed. It
// ends after close.
func (w *writer) serve() {
	for range w.takeOver {
		w.took = leastTaken // starts the time limit
		w.flush(true)
	}
}

// limit shortens the time in which the peer may take less than leastTaken to d, from now on.
func (w *writer) limit(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stall = d
	w.expire(d)
}

// expire gives sendWaiting the time d from now. It is called with mu held.
func (w *writer) expire(d time.Duration) { _ = w.conn.SetWriteDeadline(time.Now().Add(d)) }

// settle waits until nothing is pending or being sent. limit bounds how long that takes.
func (w *writer) settle() {
	w.mu.Lock()
	w.held, w.inRow = false, false
	w.unlockAndSend()
	w.mu.Lock()
	for w.flushing {
		w.idle.Wait()
	}
	w.mu.Unlock()
}

// close ends serve. The writer must be dead and settled; posts are still allowed but have no
// effect.
func (w *writer) close() {
	close(w.takeOver)
	if w.tap != nil {
		w.tap.Close()
	}
}
