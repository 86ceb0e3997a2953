package rdma

import (
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// cqDevice has completion queues whose contents the tests provide.
type cqDevice struct {
	verbs.Device
	max    int
	queues []*scriptedCQ
}

func (d *cqDevice) Attr() verbs.DeviceAttr { return verbs.DeviceAttr{MaxCQE: d.max} }

func (d *cqDevice) CreateCQ(cqe int, handler func(verbs.CQ)) (verbs.CQ, error) {
	c := &scriptedCQ{entries: cqe, handler: handler}
	d.queues = append(d.queues, c)
	return c, nil
}

type scriptedCQ struct {
	verbs.CQ
	entries int
	handler func(verbs.CQ)
	wcs     []verbs.WC
	late    []verbs.WC // arrive when the queue is about to be armed
	armed   bool
	polled  func() // may be nil
}

func (c *scriptedCQ) Poll(wc []verbs.WC) int {
	n := copy(wc, c.wcs)
	c.wcs = c.wcs[n:]
	if c.polled != nil {
		c.polled()
	}
	return n
}

func (c *scriptedCQ) ReqNotify() bool {
	c.wcs, c.late = append(c.wcs, c.late...), nil
	c.armed = true
	return len(c.wcs) > 0
}

// fire delivers the completions of these queue pairs.
func (c *scriptedCQ) fire(qpns ...uint32) {
	c.armed = false
	for _, n := range qpns {
		c.wcs = append(c.wcs, verbs.WC{QPNum: n})
	}
	c.handler(c)
}

type numberedQP struct {
	verbs.QP
	num uint32
}

func (q numberedQP) QPNum() uint32 { return q.num }

// recorder is a connection that records the calls it gets.
type recorder struct {
	t     *testing.T
	num   uint32
	ended bool
	open  bool // between begin and end
	log   *[]uint32

	expected, done int
	delivering     bool // since begun
}

func (r *recorder) beginCompletions() bool {
	if r.open {
		r.t.Errorf("connection %d begins twice", r.num)
	}
	r.open = !r.ended
	return r.open
}

func (r *recorder) expect(wc *verbs.WC) {
	if !r.open || wc.QPNum != r.num || r.delivering {
		r.t.Errorf("connection %d (begun: %v, given some: %v) is to expect one of %d", r.num, r.open, r.delivering, wc.QPNum)
	}
	r.expected++
}

func (r *recorder) completed(wc *verbs.WC, now int64) {
	if !r.open || wc.QPNum != r.num || now != 7 {
		r.t.Errorf("connection %d (begun: %v) is given a completion of %d at %d", r.num, r.open, wc.QPNum, now)
	}
	r.delivering = true
	r.done++
}

func (r *recorder) endCompletions(*batch) {
	if !r.open {
		r.t.Errorf("connection %d ends without a beginning", r.num)
	}
	r.open, r.delivering = false, false
	*r.log = append(*r.log, r.num)
}

// TestCompletionsReachTheirConnections: each connection gets its own completions, and posts once for those that arrived
// together; a connection that has ended gets none.
func TestCompletionsReachTheirConnections(t *testing.T) {
	dev := &cqDevice{max: 1 << 20}
	d := &domain{dev: dev, now: func() int64 { return 7 }}
	s, err := d.completions(10)
	if err != nil {
		t.Fatal(err)
	}
	var log []uint32
	conns := map[uint32]*recorder{}
	for n := uint32(1); n <= 4; n++ {
		conns[n] = &recorder{t: t, num: n, log: &log}
		s.join(numberedQP{num: n}, conns[n])
	}
	cq := dev.queues[0]
	want := func(what string, ends []uint32, completions map[uint32]int, alone ...uint32) {
		t.Helper()
		if !slices.Equal(log, ends) {
			t.Errorf("%s: posts of %v, want %v", what, log, ends)
		}
		for n, c := range conns {
			if c.done != completions[n] || c.open {
				t.Errorf("%s: connection %d has %d completions (open: %v), want %d", what, n, c.done, c.open, completions[n])
			}
			if alone := slices.Contains(alone, n); !alone && c.expected != c.done || alone && c.expected != 0 {
				t.Errorf("%s: connection %d expected %d of %d completions", what, n, c.expected, c.done)
			}
			c.done, c.expected = 0, 0
		}
		if !cq.armed {
			t.Errorf("%s: the queue isn't armed", what)
		}
		log = nil
	}
	cq.fire(1, 2, 2, 1, 99, 4)
	want("some", []uint32{2, 1, 4}, map[uint32]int{1: 2, 2: 2, 4: 1})

	cq.late = []verbs.WC{{QPNum: 3}}
	cq.fire(1)
	want("one more in the meantime", []uint32{1, 3}, map[uint32]int{1: 1, 3: 1}, 1, 3)

	conns[2].ended = true
	cq.fire(2, 1, 2)
	want("one has ended", []uint32{1}, map[uint32]int{1: 1})

	s.leave(numberedQP{num: 1}, conns[1], 0)
	cq.fire(1, 3)
	want("one has left", []uint32{3}, map[uint32]int{3: 1})

	many := make([]uint32, 2*polledAtOnce+1)
	for i := range many {
		many[i] = 3
	}
	many[len(many)-1] = 4
	cq.fire(many...)
	want("more than are polled at once", []uint32{3, 3, 4}, map[uint32]int{3: len(many) - 1, 4: 1}, 4)
}

// TestNumberUsedAgain: a device may give a new queue pair the number of one that was just destroyed. The new connection
// gets its own completions, even if the old one leaves later, and none of the old one's.
func TestNumberUsedAgain(t *testing.T) {
	dev := &cqDevice{max: 1 << 20}
	s, err := (&domain{dev: dev, now: func() int64 { return 7 }}).completions(10)
	if err != nil {
		t.Fatal(err)
	}
	var log []uint32
	qp := numberedQP{num: 1}
	before, after := &recorder{t: t, num: 1, log: &log}, &recorder{t: t, num: 1, log: &log}
	s.join(qp, before)
	cq := dev.queues[0]
	cq.polled = func() {
		if s.mu.TryLock() { // otherwise after has to wait
			s.mu.Unlock()
			s.join(qp, after)
		}
	}
	cq.fire(1)
	if before.done != 1 || after.done != 0 {
		t.Errorf("the old connection has %d of its completions, the new one %d of them", before.done, after.done)
	}
	cq.polled, before.ended = nil, true
	s.join(qp, after)
	s.leave(qp, before, 0)
	if cq.fire(1); after.done != 1 {
		t.Errorf("the new connection has %d completions, want 1", after.done)
	}
}

// TestRoomForCompletions: another completion queue is made when the others have no room, which connections give back,
// and it is as large as a connection needs.
func TestRoomForCompletions(t *testing.T) {
	dev := &cqDevice{max: 100}
	d := &domain{dev: dev}
	take := func(n int) *completions {
		t.Helper()
		s, err := d.completions(n)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := take(60)
	if s := take(40); s != first {
		t.Error("a second queue, where the first has room")
	}
	second := take(1)
	if second == first {
		t.Error("the first queue, where it is full")
	}
	first.leave(nil, nil, 60)
	if s := take(60); s != first {
		t.Error("another queue, where the first has room again")
	}
	if take(101); dev.queues[len(dev.queues)-1].entries != 101 {
		t.Errorf("%d entries, want 101", dev.queues[len(dev.queues)-1].entries)
	}
	if n := len(dev.queues); n != 3 {
		t.Errorf("%d queues, want 3", n)
	}
}
