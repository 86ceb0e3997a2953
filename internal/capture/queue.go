package capture

import (
	"net/netip"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/internal/mem"
)

// kind says what a record holds.
type kind uint8

const (
	udpSent kind = iota
	udpReceived
	tcpOpened
	tcpSent
	tcpReceived
	tcpClosed
)

// record is one call: a train, a coalesced receive, or bytes of a stream.
type record struct {
	kind     kind
	class    uint8 // traffic class
	when     time.Time
	src, dst netip.AddrPort
	segment  int     // datagram size
	stream   *Stream // tcp…
	skipped  int     // tcp…: bytes that were left out before these
	size     int     // bytes of batch.data
}

// batch is what one write takes from the queue. It is reused.
type batch struct {
	records []record
	data    []byte // of all records, in order
}

// maxQueued bounds a batch's data and records together. One batch is filled while the other is
// written, so the queue as a whole holds twice this.
const maxQueued = 32 << 20

func (b *batch) cost() int {
	return len(b.data) + len(b.records)*int(unsafe.Sizeof(record{}))
}

func (b *batch) reset() {
	clear(b.records)
	b.records, b.data = b.records[:0], b.data[:0]
}

// queue passes records from the goroutines that record to the one that writes.
type queue struct {
	mu      sync.Mutex
	filling *batch
	dropped uint64 // datagrams and stream calls left out
	closed  bool   // records are ignored
	wake    chan struct{}
}

func newQueue() *queue {
	return &queue{filling: new(batch), wake: make(chan struct{}, 1)}
}

// put appends a record whose data are the first r.size bytes of parts, or all of them if they
// are fewer. It returns false if there is no room, and counts items as dropped; a closed queue
// accepts anything and keeps nothing.
func (q *queue) put(r record, parts [][]byte, items int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return true
	}
	b := q.filling
	if b.cost()+r.size+int(unsafe.Sizeof(r)) > maxQueued {
		q.dropped += uint64(items)
		return false
	}
	left := r.size
	for _, p := range parts {
		p = p[:min(left, len(p))]
		at := len(b.data)
		b.data = slices.Grow(b.data, len(p))[:at+len(p)]
		if _, ok := mem.Copy(b.data[at:], p); !ok { // in which case it can't be sent, either
			clear(b.data[at:])
		}
		left -= len(p)
	}
	r.size -= left
	b.records = append(b.records, r)
	q.signal()
	return true
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for records and exchanges the batch that holds them for an empty one. It returns
// nil when the queue is closed and everything has been taken.
func (q *queue) take(empty *batch) *batch {
	for {
		q.mu.Lock()
		full, closed := q.filling, q.closed
		if len(full.records) > 0 {
			q.filling = empty
			q.mu.Unlock()
			return full
		}
		q.mu.Unlock()
		if closed {
			return nil
		}
		<-q.wake
	}
}

// close makes the queue ignore later records; those in it are still taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

func (q *queue) drops() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}
