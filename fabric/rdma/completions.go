package rdma

import (
	"fmt"
	"sync"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// completions is a completion queue that many connections share, and its members. One call polls the completions of all
// of them, into memory that stays in the processor's caches, whereas many connections with little to do would each need
// a call and memory of their own. Linux and SPDK share completion queues in the same way.
type completions struct {
	cq  verbs.CQ
	now func() int64 // may be nil

	// The fields used only by the handler.
	wcs    [polledAtOnce]verbs.WC
	owners [polledAtOnce]*member
	batch  batch // of the posts that result

	mu      sync.Mutex
	room    int // entries not assigned to a connection
	members map[uint32]*member
}

// consumer is a connection, as its completion queue sees it. The handler makes the calls.
type consumer interface {
	// beginCompletions is called before some completions are delivered. It returns false if the queue pair is
	// destroyed, and the completions no longer matter.
	beginCompletions() bool
	// completed handles a completion that was polled at now; now is 0 if there is no clock.
	completed(wc *verbs.WC, now int64)
	// endCompletions posts the work that resulted from the completions, using b.
	endCompletions(b *batch)
}

// expecter is a consumer that prepares for completions if several have arrived.
type expecter interface {
	// expect is called before the first of them is delivered, in the order of delivery.
	expect(wc *verbs.WC)
}

// member is a consumer that has a queue pair. The other fields are used only by the handler.
type member struct {
	consumer
	expecter expecter // the consumer, if it is one
	left     int      // completions that were polled and not delivered yet
	begun    bool     // beginCompletions was called since they were polled
	live     bool     // beginCompletions returned true
}

const (
	// sharedEntries is the number of entries of a shared completion queue, unless one connection needs more or the
	// device supports fewer: enough for about a hundred queues of 128.
	sharedEntries = 1 << 16
	// polledAtOnce is how many completions are polled at a time: all those of one connection among them lead to a
	// single post.
	polledAtOnce = 256
)

// completions finds or makes a completion queue with room for n more entries, which belong to the caller until leave.
func (d *domain) completions(n int) (*completions, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.cqs {
		if s.take(n) {
			return s, nil
		}
	}
	s := &completions{now: d.now, members: map[uint32]*member{}}
	s.room = max(min(sharedEntries, d.dev.Attr().MaxCQE), n)
	var err error
	if s.cq, err = d.dev.CreateCQ(s.room, s.event); err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	s.cq.ReqNotify()
	s.take(n)
	d.cqs = append(d.cqs, s)
	return s, nil
}

// take takes n entries, if that many are left.
func (s *completions) take(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room < n {
		return false
	}
	s.room -= n
	return true
}

// join makes c the consumer of the completions of a queue pair.
func (s *completions) join(qp verbs.QP, c consumer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &member{consumer: c}
	m.expecter, _ = c.(expecter)
	s.members[qp.QPNum()] = m
}

// leave gives n entries back. The queue pair that c used them for, if there was one, is destroyed; another one may have
// its number already.
func (s *completions) leave(qp verbs.QP, c consumer, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room += n
	if qp == nil {
		return
	}
	if m := s.members[qp.QPNum()]; m != nil && m.consumer == c {
		delete(s.members, qp.QPNum())
	}
}

// event polls and delivers completions until there are none.
func (s *completions) event(cq verbs.CQ) {
	for {
		n := s.poll(cq)
		s.deliver(s.wcs[:n])
		if n < len(s.wcs) && !cq.ReqNotify() {
			break
		}
	}
}

// poll takes completions from the queue and finds the owner of each. Nobody joins in between: a queue pair may get the
// number of a destroyed one, whose completions must not become its own.
func (s *completions) poll(cq verbs.CQ) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := cq.Poll(s.wcs[:])
	var m *member
	for i := range s.wcs[:n] {
		if i == 0 || s.wcs[i].QPNum != s.wcs[i-1].QPNum {
			m = s.members[s.wcs[i].QPNum]
		}
		if s.owners[i] = m; m != nil {
			m.left++
		}
	}
	return n
}

// deliver delivers completions, whose owners are known, in order. A connection posts as soon as it has had its last one,
// while its data is still in the caches.
func (s *completions) deliver(wcs []verbs.WC) {
	s.begin(wcs)
	var now int64
	if s.now != nil {
		now = s.now()
	}
	for i := range wcs {
		m := s.owners[i]
		if m == nil {
			continue // its connection has ended
		}
		if m.live {
			m.completed(&wcs[i], now)
		}
		if m.left--; m.left > 0 {
			continue
		}
		if m.begun = false; m.live {
			m.endCompletions(&s.batch)
		}
	}
}

// begin tells each owner that completions are about to be delivered, and which ones.
func (s *completions) begin(wcs []verbs.WC) {
	for i := range wcs {
		m := s.owners[i]
		if m == nil {
			continue
		}
		if !m.begun {
			m.begun, m.live = true, m.beginCompletions()
		}
		if m.live && m.expecter != nil && len(wcs) > 1 {
			m.expecter.expect(&wcs[i])
		}
	}
}
