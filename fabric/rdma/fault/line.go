package fault

import (
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/pqueue"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// held is a datagram that is held back.
type held struct {
	due      time.Time
	sequence uint64 // breaks ties
	data     []byte
	sent     udp.Train    // for an outgoing one
	received udp.Received // for an incoming one, without its bytes
}

// maxHeld bounds how many bytes a line holds.
const maxHeld = 64 << 20

// line keeps datagrams until they are due.
type line struct {
	alarm alarm

	mu       sync.Mutex
	queue    pqueue.Queue[held] // the next one due first
	sequence uint64
	bytes    int
	taken    int   // how many the last take returned; the next call shows that they were handled
	err      error // why nothing comes any more
}

func newLine() *line {
	return &line{queue: pqueue.New(func(a, b held) bool {
		if c := a.due.Compare(b.due); c != 0 {
			return c < 0
		}
		return a.sequence < b.sequence
	}, nil)}
}

// put adds h, and returns false if there is no room for it. The line keeps h.data.
func (l *line) put(h held) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes+len(h.data) > maxHeld {
		return false
	}
	l.bytes += len(h.data)
	l.sequence++
	h.sequence = l.sequence
	l.queue.Push(h)
	if l.queue.First().sequence == h.sequence {
		l.alarm.ring()
	}
	return true
}

// take moves what is due to out, and returns how many; after end it returns 0 and end's error.
func (l *line) take(now time.Time, out []held) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = 0
	if l.err != nil {
		return 0, l.err
	}
	n := 0
	for n < len(out) && l.queue.Len() > 0 && !l.queue.First().due.After(now) {
		out[n] = l.queue.Pop()
		l.bytes -= len(out[n].data)
		n++
	}
	l.taken = n
	return n, nil
}

// wait returns when something may be due, or when the line has ended.
func (l *line) wait() {
	seen := l.alarm.now()
	l.mu.Lock()
	timeout := time.Duration(-1)
	switch {
	case l.err != nil:
		timeout = 0
	case l.queue.Len() > 0:
		timeout = max(0, time.Until(l.queue.First().due))
	}
	l.mu.Unlock()
	if timeout != 0 {
		l.alarm.wait(seen, timeout)
	}
}

// empty reports whether nothing is held back, nor still being handled after the last take.
func (l *line) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.Len() == 0 && l.taken == 0
}

// end makes take return err from now on.
func (l *line) end(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	l.mu.Unlock()
	l.alarm.ring()
}
