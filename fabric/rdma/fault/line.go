package fault

import (
	"container/heap"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// held is a datagram on its way.
type held struct {
	due      time.Time
	sequence uint64 // decides between equal times
	data     []byte
	sent     udp.Train    // of an outgoing one, without its parts
	received udp.Received // of an incoming one, without its bytes
}

// maxHeld bounds what a line holds, in bytes.
const maxHeld = 64 << 20

// line keeps datagrams until they are due.
type line struct {
	alarm alarm

	mu       sync.Mutex
	queue    heldQueue
	sequence uint64
	bytes    int
	taken    int   // by the last take, which the next one shows to be dealt with
	err      error // why nothing comes any more
}

// put adds h, and reports false where there is no room for it. The line keeps h.data.
func (l *line) put(h held) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes+len(h.data) > maxHeld {
		return false
	}
	l.bytes += len(h.data)
	l.sequence++
	h.sequence = l.sequence
	heap.Push(&l.queue, h)
	if l.queue[0].sequence == h.sequence {
		l.alarm.ring()
	}
	return true
}

// take moves what is due into out, and returns how many that were; 0 with the error of end
// once there is one.
func (l *line) take(now time.Time, out []held) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = 0
	if l.err != nil {
		return 0, l.err
	}
	n := 0
	for n < len(out) && len(l.queue) > 0 && !l.queue[0].due.After(now) {
		out[n] = heap.Pop(&l.queue).(held)
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
	case len(l.queue) > 0:
		timeout = max(0, time.Until(l.queue[0].due))
	}
	l.mu.Unlock()
	if timeout != 0 {
		l.alarm.wait(seen, timeout)
	}
}

// empty says whether nothing is on its way, nor in the hands of who took it last.
func (l *line) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) == 0 && l.taken == 0
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

// heldQueue is a heap, the next one at the top (container/heap).
type heldQueue []held

func (q *heldQueue) Len() int { return len(*q) }

func (q *heldQueue) Less(i, j int) bool {
	a, b := &(*q)[i], &(*q)[j]
	if c := a.due.Compare(b.due); c != 0 {
		return c < 0
	}
	return a.sequence < b.sequence
}

func (q *heldQueue) Swap(i, j int) { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }

// Push and Pop are for container/heap.
func (q *heldQueue) Push(x any) { *q = append(*q, x.(held)) }

// Pop removes the last element.
func (q *heldQueue) Pop() any {
	old := *q
	h := old[len(old)-1]
	old[len(old)-1] = held{}
	*q = old[:len(old)-1]
	return h
}
