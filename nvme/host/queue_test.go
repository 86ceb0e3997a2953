package host

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// manualQueue is a transport queue whose responses the test sends by hand.
type manualQueue struct {
	mu   sync.Mutex
	sent []*Request
	cids []uint16
	sink Sink
}

func (m *manualQueue) Submit(rs []*Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range rs {
		m.sent = append(m.sent, r)
		m.cids = append(m.cids, r.Cmd.CID())
	}
}
func (m *manualQueue) Size() int             { return 0 }
func (m *manualQueue) Local() netip.AddrPort { return netip.AddrPort{} }
func (m *manualQueue) Close() error          { return nil }

func (m *manualQueue) answer(cid uint16, st nvme.Status) bool {
	var cqe nvme.Completion
	cqe.SetCID(cid)
	cqe.SetStatus(st)
	return m.sink.Completed(&cqe)
}

// loneOwner is a queue owner without a controller.
type loneOwner struct{}

func (loneOwner) expired(*Queue, uint16, bool)          {}
func (loneOwner) abort(*Queue, uint16)                  {}
func (loneOwner) giveUp(*Queue, error)                  {}
func (loneOwner) queueClosed(_ *Queue, err error) error { return &LostError{Cause: err} }

func manual(size int) (*Queue, *manualQueue) {
	m := &manualQueue{}
	q := newQueue(QueueAttr{QID: 1, Size: size}, defaultIOTimeout, loneOwner{})
	q.tq, m.sink = m, (*sink)(q)
	return q, m
}

func requests(n int, done func(i int, r *Request)) []*Request {
	rs := make([]*Request, n)
	for i := range rs {
		rs[i] = &Request{Done: func(r *Request) { done(i, r) }}
		rs[i].Cmd.SetFlush(1)
	}
	return rs
}

func TestQueueFull(t *testing.T) {
	for _, size := range []int{2, 5, 8, 129, 65536} {
		q, m := manual(size)
		n := 2*q.Depth() + 3
		ended := 0
		rs := requests(n, func(i int, r *Request) {
			if i != ended || r.Err != nil || r.Status() != nvme.StatusCompareFailure {
				t.Fatalf("size %d: request %d ended in place %d: %v %v", size, i, ended, r.Err, r.Status())
			}
			ended++
		})
		q.Submit(rs)
		if len(m.sent) != size-1 || len(q.free) != 0 || q.Counters().Waited.Load() != uint64(n-size+1) {
			t.Fatalf("size %d: %d sent", size, len(m.sent))
		}
		// Each response lets the request that has waited longest go.
		for i := range n {
			if m.sent[i] != rs[i] {
				t.Fatalf("size %d: request %d was not sent in its turn", size, i)
			}
			if int(m.sent[i].Slot) >= size || int(m.cids[i]&q.mask) != int(m.sent[i].Slot) {
				t.Fatalf("size %d: slot %d for CID %#x", size, m.sent[i].Slot, m.cids[i])
			}
			if !m.answer(m.cids[i], nvme.StatusCompareFailure) {
				t.Fatalf("size %d: CID %#x was refused", size, m.cids[i])
			}
		}
		if ended != n || len(q.free) != q.Depth() {
			t.Errorf("size %d: %d of %d ended", size, ended, n)
		}
		m.sink.Closed(nil)
	}
}

// TestCIDs runs many commands through few slots, in random order: no CID may be reused while it is outstanding, nor
// soon after, and FFFFh is never used.
func TestCIDs(t *testing.T) {
	q, m := manual(9)
	rs := requests(8, func(int, *Request) {})
	q.Submit(rs)
	outstanding := append([]uint16(nil), m.cids...)
	last := map[uint16]int{}
	for i := range 200000 {
		k := rand.IntN(len(outstanding))
		cid := outstanding[k]
		r := q.slots[cid&q.mask].req
		if !m.answer(cid, 0) {
			t.Fatalf("CID %#x was refused", cid)
		}
		m.sent, m.cids = m.sent[:0], m.cids[:0]
		q.SubmitOne(r)
		now := m.cids[0]
		if prev, ok := last[now]; ok && i-prev < 1000 || now == 0xffff {
			t.Fatalf("CID %#x came again after %d commands", now, i-prev)
		}
		last[now] = i
		if m.answer(cid, 0) {
			t.Fatalf("second response to CID %#x was taken", cid)
		}
		outstanding[k] = now
	}
	m.sink.Closed(nil)
}

func TestUnknownCID(t *testing.T) {
	q, m := manual(8)
	for _, cid := range []uint16{0, 6, 7, 8, 0xffff} {
		if m.answer(cid, 0) {
			t.Errorf("CID %#x was taken though nothing is outstanding", cid)
		}
	}
	m.sink.Closed(nil)
	_ = q
}

func TestLossEndsEveryRequest(t *testing.T) {
	q, m := manual(8)
	cause := errors.New("connection reset")
	ended := 0
	rs := requests(20, func(_ int, r *Request) {
		ended++
		for _, want := range []error{ErrLost, nvme.StatusHostPathError, cause} {
			if !errors.Is(r.Err, want) {
				t.Errorf("%v doesn't match %v", r.Err, want)
			}
		}
		if r.Status() != nvme.StatusHostPathError || !errors.Is(r.Check(), r.Err) {
			t.Errorf("status %v, %v", r.Status(), r.Check())
		}
	})
	q.Submit(rs)
	(*sink)(q).Closed(cause)
	if ended != 20 {
		t.Errorf("%d of 20 ended", ended)
	}
	q.Submit(rs[:1])
	q.submitUrgent(rs[1])
	if ended != 22 || len(m.sent) != 7 {
		t.Errorf("requests after the end: %d ended, %d sent", ended, len(m.sent))
	}
	if m.answer(m.cids[0], 0) {
		t.Error("a response after the end was taken")
	}
}

// TestCloseRace submits from many goroutines while responses arrive and the connection ends: each request ends
// exactly once per submission, and nobody touches its memory afterwards.
func TestCloseRace(t *testing.T) {
	for range 50 {
		f := newFakeTarget()
		c := connect(t, f)
		var submitted, ended atomic.Int64
		var wg sync.WaitGroup
		for i := range 4 {
			q := c.Queues()[i%2]
			for range 80 {
				wg.Add(1)
				submitted.Add(1)
				r := &Request{Data: make([]byte, 512)}
				r.Cmd.SetIO(nvme.OpRead, 1, 0, 1, 0)
				r.Done = func(r *Request) {
					ended.Add(1)
					r.Data[0]++ // ours again, or the race detector reports it
					r.Cmd.SetIO(nvme.OpRead, 1, 0, 1, 0)
					if r.Err != nil {
						wg.Done()
						return
					}
					submitted.Add(1)
					q.SubmitOne(r)
				}
				go q.SubmitOne(r)
			}
		}
		for ended.Load() < 1000 {
			if _, err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		f.breakAll(errors.New("cable pulled"))
		wg.Wait()
		if submitted.Load() != ended.Load() {
			t.Fatalf("%d submitted, %d ended", submitted.Load(), ended.Load())
		}
		if err := c.Close(); !errors.Is(err, ErrLost) {
			t.Fatalf("close after the loss: %v", err)
		}
	}
}

func TestWaitingList(t *testing.T) {
	var l list
	rs := requests(4, nil)
	l.push(rs[0])
	l.push(rs[1])
	l.push(rs[2])
	if !l.remove(rs[2]) || l.remove(rs[3]) || l.remove(rs[2]) {
		t.Error("remove")
	}
	l.push(rs[3])
	for _, want := range []*Request{rs[0], rs[1], rs[3], nil} {
		if l.pop() != want {
			t.Error("order")
		}
	}
	if !l.empty() || l.tail != nil {
		t.Error("not empty")
	}
}

func TestDoCancelWaiting(t *testing.T) {
	q, m := manual(2)
	q.SubmitOne(requests(1, func(int, *Request) {})[0])
	for i, s := range []sender{q, urgent{q}} {
		ctx, cancel := context.WithCancel(t.Context())
		r := new(Request)
		result := make(chan error)
		go func() { result <- do(ctx, s, r, 1) }()
		for q.counters.Waited.Load() == uint64(i) {
		}
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) || !errors.Is(err, errNotSent) {
			t.Error(err)
		}
		if err := do(ctx, s, r, 1); !errors.Is(err, context.Canceled) {
			t.Error("a command with an ended context was sent:", err)
		}
	}
	m.sink.Closed(nil)
}

// TestIfCancelled: a caller that has given a command up doesn't use its request again while somebody cancels it who may
// be late: that would hit the next command.
func TestIfCancelled(t *testing.T) {
	q, m := manual(8)
	defer m.sink.Closed(nil)
	ctx, cancel := context.WithCancel(t.Context())
	r := new(Request)
	r.IfCancelled(func() { t.Error("a request is cancelled that nobody has given up") })
	result := make(chan error, 1)
	go func() { result <- do(ctx, q, r, 1) }()
	for q.counters.Submitted.Load() == 0 {
		runtime.Gosched()
	}
	cancel()
	for !r.Cancelled() {
		runtime.Gosched()
	}
	r.IfCancelled(func() {
		m.answer(m.cids[0], nvme.StatusAbortRequested)
		for range 1000 {
			runtime.Gosched()
		}
		if len(result) != 0 {
			t.Error("the caller has the request back")
		}
	})
	if err := <-result; !errors.Is(err, context.Canceled) || r.Cancelled() {
		t.Errorf("it ended with %v, cancelled: %v", err, r.Cancelled())
	}
}

// TestNoAllocation counts what one command allocates in the queue alone.
func TestNoAllocation(t *testing.T) {
	q, m := manual(128)
	m.sent, m.cids = make([]*Request, 0, 1024), make([]uint16, 0, 1024)
	rs := requests(64, func(int, *Request) {})
	var cqe nvme.Completion
	round := func() {
		m.sent, m.cids = m.sent[:0], m.cids[:0]
		q.Submit(rs[:32])
		for _, r := range rs[32:] {
			q.SubmitOne(r)
		}
		for _, cid := range m.cids {
			cqe.SetCID(cid)
			(*sink)(q).Completed(&cqe)
		}
	}
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations per 64 commands", n)
	}
	m.sink.Closed(nil)
}

func BenchmarkQueue(b *testing.B) {
	q, m := manual(128)
	m.sent, m.cids = make([]*Request, 0, 1024), make([]uint16, 0, 1024)
	rs := requests(32, func(int, *Request) {})
	var cqe nvme.Completion
	b.ReportAllocs()
	for i := 0; i < b.N; i += len(rs) {
		m.sent, m.cids = m.sent[:0], m.cids[:0]
		q.Submit(rs)
		for _, cid := range m.cids {
			cqe.SetCID(cid)
			(*sink)(q).Completed(&cqe)
		}
	}
	m.sink.Closed(nil)
}

// slowQueue is a transport queue that is still looking at requests when its connection ends.
type slowQueue struct {
	manualQueue
	entered, leave chan struct{}
}

func (s *slowQueue) Submit([]*Request) {
	close(s.entered)
	<-s.leave
}

// TestLossDuringSubmit: a request is given back only when the transport no longer looks at it: its owner may then
// put other data into its memory, which would otherwise go where the old data was meant to go.
func TestLossDuringSubmit(t *testing.T) {
	q, _ := manual(8)
	s := &slowQueue{entered: make(chan struct{}), leave: make(chan struct{})}
	q.tq = s
	var ended atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.Submit(requests(3, func(int, *Request) { ended.Add(1) }))
	}()
	<-s.entered
	(*sink)(q).Closed(errors.New("cut"))
	q.drainOnceIdle() // as a Submit does that left when this one hadn't begun, but only now sees that it is over
	if n := ended.Load(); n != 0 {
		t.Errorf("%d requests ended while the transport looks at them", n)
	}
	close(s.leave)
	<-done
	if n := ended.Load(); n != 3 {
		t.Errorf("%d requests ended, want 3", n)
	}
}
