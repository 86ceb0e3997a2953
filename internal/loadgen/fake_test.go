package loadgen

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	fakeSize  = 1 << 20
	fakeBlock = 512
)

// fakeDevice answers at once, or after a delay, from another goroutine.
type fakeDevice struct {
	delay  time.Duration
	failAt int64     // operation that fails, 0 for none
	seen   func(*IO) // is shown every operation when it begins
	ends   func(*IO) // and when it ends
	gate   chan struct{}

	mu   sync.Mutex
	data []byte // nil: it stores nothing

	count   atomic.Int64
	depth   atomic.Int64
	deepest atomic.Int64
	lent    atomic.Int64
}

func (d *fakeDevice) Size() int64                  { return fakeSize }
func (d *fakeDevice) BlockSize() int               { return fakeBlock }
func (d *fakeDevice) OpenQueue(int) (Queue, error) { return (*fakeQueue)(d), nil }

type fakeQueue fakeDevice

// Alloc returns memory that was used before.
func (q *fakeQueue) Alloc(n int) ([]byte, error) {
	q.lent.Add(1)
	return bytes.Repeat([]byte{0xa5}, n), nil
}
func (q *fakeQueue) Free([]byte) { q.lent.Add(-1) }

// begin counts an operation as outstanding.
func (q *fakeQueue) begin() {
	for d := q.depth.Add(1); ; {
		if old := q.deepest.Load(); d <= old || q.deepest.CompareAndSwap(old, d) {
			break
		}
	}
}

func (q *fakeQueue) Submit(io *IO) {
	q.begin()
	n := q.count.Add(1)
	io.Err = nil
	if n == q.failAt {
		io.Err = errors.New("made to fail")
	}
	if q.seen != nil {
		q.seen(io)
	}
	q.move(io)
	end := func() {
		if q.gate != nil {
			<-q.gate
		}
		q.depth.Add(-1)
		if q.ends != nil {
			q.ends(io)
		}
		io.Done(io)
	}
	if q.delay > 0 {
		time.AfterFunc(q.delay, end)
		return
	}
	go end()
}

func (q *fakeQueue) move(io *IO) {
	if q.data == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch io.Op {
	case Write:
		copy(q.data[io.Offset:], io.Buf)
	case Read:
		copy(io.Buf, q.data[io.Offset:])
	case Trim:
		clear(q.data[io.Offset:][:io.Length])
	}
}

// syncDevice completes operations from one goroutine, without allocating.
type syncDevice struct {
	ios uint64
}

func (d *syncDevice) Size() int64    { return fakeSize }
func (d *syncDevice) BlockSize() int { return fakeBlock }

func (d *syncDevice) OpenQueue(int) (Queue, error) {
	q := &syncQueue{ch: make(chan *IO, 64)}
	go func() {
		for io := range q.ch {
			io.Done(io)
		}
	}()
	return q, nil
}

type syncQueue struct {
	ch   chan *IO
	lent int
}

func (q *syncQueue) Submit(io *IO)               { q.ch <- io }
func (q *syncQueue) Alloc(n int) ([]byte, error) { q.lent++; return make([]byte, n), nil }

func (q *syncQueue) Free([]byte) {
	if q.lent--; q.lent == 0 {
		close(q.ch)
	}
}
