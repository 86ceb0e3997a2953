package rdma

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// hostQueue is one queue pair of a controller: host.TransportQueue over an RC queue pair.
//
// Like the target's side it is driven by completions: they deliver responses, whose Done may submit more commands, and
// everything is posted together at the end. A Submit from elsewhere posts at once, unless a goroutine is posting
// already or is about to.
type hostQueue struct {
	t    *Transport
	id   verbs.CMID
	dom  *domain
	cq   *completions
	attr host.QueueAttr

	slots       []slot
	capsuleSize int
	capsules    []byte // a command capsule per slot
	capsuleSGE  verbs.SGE
	cqes        []byte // a receive buffer per slot, for any response
	cqeSGE      verbs.SGE
	sqSize      int
	mtu         int  // bytes of a SEND per packet …
	evenSends   bool // … unless its packets are of one size

	closed chan struct{} // Sink.Closed has returned

	poster                     // its mu guards the rest
	ready      []*host.Request // to be posted, oldest first
	recvs      []int           // receive buffers that aren't posted, the most recently used last
	unanswered int             // commands posted
	revoke     []int           // slots whose key is to be invalidated locally, each once
	sqUsed     int             // work requests that aren't known to be complete
	sqTail     int             // those after the last signaled one
	started    bool
	dead       error
}

// slotState is the progress of the command in a slot.
type slotState uint8

const (
	slotIdle     slotState = iota // no command, or one that isn't posted yet, so a response to it is an error
	slotPosted                    // the target may answer
	slotAnswered                  // the target has answered, and the command's memory isn't its owner's yet: see slot
)

// slot is the transport's state of the command in one slot of the queue. hostQueue.mu protects it: a target may answer
// a command before that has reached it.
type slot struct {
	state  slotState
	window verbs.MW // nil if the device has none
	key    uint32   // R_Key of the window lent to the target, 0 for none
	mr     verbs.MR // registration made for this command alone, nil for none
	// sending is set while the data was sent in the capsule from where it lies, and the device may send it again,
	// because the target hasn't acknowledged it. covers is the number of work requests that are complete when it has.
	sending bool
	covers  int
	// cqe is a copy of the response, so that its receive buffer is free at once. It waits here until the key that the
	// target did not invalidate is invalid, or until the data won't be sent again.
	cqe nvme.Completion
}

// signalEvery bounds the number of sends between two signaled ones: that of completions is small.
const signalEvery = 8

func (t *Transport) newQueue(id verbs.CMID, a host.QueueAttr) (*hostQueue, error) {
	dom, err := t.memory.on(id.Device())
	if err != nil {
		return nil, err
	}
	q := &hostQueue{
		t: t, id: id, dom: dom, attr: a,
		slots:       make([]slot, a.Size),
		capsuleSize: nvme.CommandSize + a.InCapsule,
		// Two per command, and a third if its key has to be invalidated.
		sqSize: min(3*a.Size+2*signalEvery, id.Device().Attr().MaxQPWR),
		closed: make(chan struct{}),
	}
	q.conn = q
	if err := q.setUp(); err != nil {
		q.tearDown()
		return nil, err
	}
	return q, nil
}

func (q *hostQueue) setUp() error {
	m, n := q.t.memory, q.attr.Size
	q.capsules = m.arena.AllocSparse(n * q.capsuleSize)
	q.cqes = m.arena.Alloc(n * nvme.CompletionSize)
	if q.capsules == nil || q.cqes == nil {
		return m.none(n)
	}
	q.capsuleSGE, _, _ = m.sge(q.dom, q.capsules)
	q.cqeSGE, _, _ = m.sge(q.dom, q.cqes)
	if err := q.makeWindows(); err != nil {
		return err
	}
	var err error
	if q.cq, err = q.dom.completions(n + q.sqSize); err != nil {
		return err
	}
	q.qp, err = q.id.CreateQP(q.dom.pd, verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: q.cq.cq, RecvCQ: q.cq.cq,
		MaxSendWR: q.sqSize, MaxRecvWR: n, MaxSendSGE: 2, MaxRecvSGE: 1,
		EventHandler: q.qpEvent,
	})
	if err != nil {
		return err
	}
	q.cq.join(q.qp, q)
	for i := range n {
		q.recvs = append(q.recvs, i)
	}
	return nil
}

// makeWindows makes a memory window per slot, if the device offers any.
func (q *hostQueue) makeWindows() error {
	for i := range q.slots {
		w, err := q.dom.pd.AllocMW()
		if errors.Is(err, verbs.ErrUnsupported) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("memory window: %w", err)
		}
		q.slots[i].window = w
	}
	return nil
}

// start makes the queue live: from here on its end is reported to the Sink.
func (q *hostQueue) start() {
	q.t.counters.Accepted.Add(1)
	q.t.counters.Connections.Add(1)
	q.mu.Lock()
	q.started = true
	dead := q.dead != nil
	q.mu.Unlock()
	if dead {
		go q.end()
	}
}

// abandon frees a queue whose connection was never established.
func (q *hostQueue) abandon() {
	q.mu.Lock()
	q.dead = ErrClosed
	q.mu.Unlock()
	_ = q.id.Disconnect()
	q.tearDown()
}

func (q *hostQueue) tearDown() {
	if q.qp != nil {
		_ = q.qp.Destroy()
	}
	if q.cq != nil {
		q.cq.leave(q.qp, q, q.attr.Size+q.sqSize)
	}
	for i := range q.slots {
		s := &q.slots[i]
		if s.window != nil {
			_ = s.window.Dealloc()
		}
		if s.mr != nil {
			_ = s.mr.Dereg()
		}
	}
	if q.capsules != nil {
		q.t.memory.arena.Free(q.capsules)
	}
	if q.cqes != nil {
		q.t.memory.arena.Free(q.cqes)
	}
	q.capsules, q.cqes = nil, nil
}

func (q *hostQueue) cmEvent(ev verbs.CMEvent) {
	switch ev.Type {
	case verbs.CMDisconnected:
		q.fail(ErrDisconnected)
	case verbs.CMDeviceRemoval:
		q.fail(ErrDeviceRemoval)
	}
}

func (q *hostQueue) qpEvent(ev verbs.AsyncEvent) {
	if ev.Type == verbs.EventQPFatal || ev.Type == verbs.EventQPAccess {
		q.fail(fmt.Errorf("%w: the queue pair went to the error state", ErrProtocol))
	}
}

// fail ends the connection because of err; only the first call counts.
func (q *hostQueue) fail(err error) {
	q.mu.Lock()
	first := q.dead == nil
	if first {
		q.dead, q.stopped = err, true
	}
	run := first && q.started
	q.mu.Unlock()
	if run {
		go q.end()
	}
}

// end takes the connection down, and tells the Sink when the memory of requests isn't accessed any more: when the queue
// pair is destroyed and the keys are invalid.
func (q *hostQueue) end() {
	dead := fallen(q.dead, q.id, q.qp) // which nobody else changes any more
	_ = q.id.Disconnect()
	_ = q.id.Destroy()
	q.mu.Lock()
	q.dead, q.ended = dead, true
	q.unlock()
}

// reap frees the queue.
func (q *hostQueue) reap() {
	dead := q.dead // which nobody changes any more
	q.tearDown()
	q.t.counters.Connections.Add(-1)
	switch {
	case errors.Is(dead, ErrClosed):
		dead = nil
	case undisturbed(dead):
		dead = q.connError("connection", dead)
	default:
		q.t.counters.Failed.Add(1)
	}
	q.attr.Sink.Closed(dead)
	close(q.closed)
	q.t.queues.End()
}

func (q *hostQueue) connError(stage string, err error) error {
	return &ConnError{Stage: stage, Peer: q.attr.Remote, QID: q.attr.QID, Err: err}
}

// Size returns the number of entries.
func (q *hostQueue) Size() int { return q.attr.Size }

// Local returns the address that the queue pair sends from.
func (q *hostQueue) Local() netip.AddrPort { return q.id.LocalAddr() }

// Close disconnects and waits for Sink.Closed.
func (q *hostQueue) Close() error {
	q.fail(ErrClosed)
	<-q.closed
	return nil
}

var _ host.TransportQueue = (*hostQueue)(nil)
