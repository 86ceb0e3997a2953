package rdma

import (
	"fmt"
	"sync"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// completions is a completion queue that many connections share, and who they are. One call takes what has
// come for all of them, through memory that stays in the processor's caches, where each of many connections with
// little to do would have a call and memory of its own. Linux shares completion queues in the same way, and SPDK.
type completions struct {
	cq  verbs.CQ
	now func() int64 // may be nil

	// The handler's own.
	wcs    [polledAtOnce]verbs.WC
	owners [polledAtOnce]*member
	batch  batch // of the posts that come of them

	mu      sync.Mutex
	room    int // entries that are nobody's yet
	members map[uint32]*member
}

// consumer is a connection, as its completion queue knows it. The calls come from the handler.
type consumer interface {
	// beginCompletions is called before some completions are delivered. It returns false where the queue
	// pair is destroyed and they mean nothing any more.
	beginCompletions() bool
	// completed takes a completion that was found at now, where there is a clock.
	completed(wc *verbs.WC, now int64)
	// endCompletions posts what came of them, by way of b.
	endCompletions(b *batch)
}

// expecter is a consumer that prepares for completions where several have come.
type expecter interface {
	// expect is called before the first of them is delivered, in the order that they will be.
	expect(wc *verbs.WC)
}

// member is a consumer that has a queue pair. The rest is the handler's.
type member struct {
	consumer
	expecter expecter // consumer, where it is one
	left     int      // completions that were polled, and are to be delivered
	begun    bool     // since they were polled
	live     bool     // beginCompletions returned true
}

const (
	// sharedEntries is how many a shared completion queue has, unless one connection needs more, or the device
	// has less: those of about a hundred queues of 128.
	sharedEntries = 1 << 16
	// polledAtOnce is how many completions are taken at a time: those of a connection among them lead to one
	// post.
	polledAtOnce = 256
)

// completions finds or makes a completion queue with room for n entries more, which are the caller's until leave.
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

// take takes n entries, if there are as many.
func (s *completions) take(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room < n {
		return false
	}
	s.room -= n
	return true
}

// join has the completions of a queue pair delivered to c.
func (s *completions) join(qp verbs.QP, c consumer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &member{consumer: c}
	m.expecter, _ = c.(expecter)
	s.members[qp.QPNum()] = m
}

// leave gives n entries back. The queue pair that had them, if there was one, is destroyed.
func (s *completions) leave(qp verbs.QP, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room += n
	if qp != nil {
		delete(s.members, qp.QPNum())
	}
}

// event takes completions until there are none.
func (s *completions) event(cq verbs.CQ) {
	for {
		n := cq.Poll(s.wcs[:])
		s.deliver(s.wcs[:n])
		if n < len(s.wcs) && !cq.ReqNotify() {
			break
		}
	}
}

// deliver delivers completions in their order. Who has had its last one posts, while what it has is in the
// caches.
func (s *completions) deliver(wcs []verbs.WC) {
	s.findOwners(wcs)
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

// begin tells each owner that completions are going to be delivered, and which.
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

// findOwners finds out whose each completion is.
func (s *completions) findOwners(wcs []verbs.WC) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var m *member
	for i := range wcs {
		if i == 0 || wcs[i].QPNum != wcs[i-1].QPNum {
			m = s.members[wcs[i].QPNum]
		}
		if s.owners[i] = m; m != nil {
			m.left++
		}
	}
}
