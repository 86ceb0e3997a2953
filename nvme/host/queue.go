package host

import (
	"errors"
	"math/bits"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Queue is one queue pair: the table of its outstanding commands on top of a transport's connection. All methods
// may be called from any goroutine, and from Request.Done.
type Queue struct {
	attr  QueueAttr
	tq    TransportQueue
	owner queueOwner
	mask  uint16 // the bits of a CID that hold the slot
	genBy uint16 // what the next generation adds to a CID; 0 if no bits are left

	counters QueueCounters
	// submitting counts the calls of TransportQueue.Submit in progress. The requests of a connection that is gone
	// are given back only when there is none: until then the transport may access them.
	submitting atomic.Int32
	ended      atomic.Bool // Sink.Closed was called
	drained    atomic.Bool // the requests have been given back, or are being
	gone       chan struct{}

	mu       sync.Mutex
	slots    []slot
	free     []uint16 // slots without a command, the last one freed on top
	reserved int      // free slots that are left to urgent requests
	urgent   list     // urgent requests that found no slot
	waiting  list     // other requests that found none
	reason   error    // why new requests are refused; nil while the queue is open
	ending   bool     // urgent requests are refused as well
	timer    timeouts
}

// The commands of the admin queue that must not wait for others to end: Keep Alive, Abort, and one Property command of
// a shutdown. However many slow commands the owner sends, the controller is kept alive, and they can be aborted.
// Linux reserves tags likewise.
const urgentCommands = 1 + maxAborts + 1

// ordinaryLeast is how many entries of a small admin queue aren't reserved: one is taken by the Asynchronous Event
// Request.
const ordinaryLeast = 2

// slot is one entry of the table of outstanding commands.
type slot struct {
	req     *Request // nil: free
	cid     uint16   // of the command, or of the previous one
	aborted bool     // an Abort was sent for it
	tick    uint32   // when the command was submitted: see timeouts
}

// queueOwner is what a queue needs of its controller. The calls come in the context of the transport, a timer or a
// caller, and must not block.
type queueOwner interface {
	// expired: the command wasn't answered in time. again is set if this was reported before and the command is
	// still outstanding.
	expired(q *Queue, cid uint16, again bool)
	// abort: send an Abort for the command.
	abort(q *Queue, cid uint16)
	// giveUp: the connection of q can't be used any more, because of err.
	giveUp(q *Queue, err error)
	// queueClosed: the connection of q is gone because of err. The result is the error for the owners of the
	// requests.
	queueClosed(q *Queue, err error) error
}

func newQueue(attr QueueAttr, timeout time.Duration, owner queueOwner) *Queue {
	q := &Queue{attr: attr, owner: owner, gone: make(chan struct{})}
	q.timer.init(q, timeout)
	n := bits.Len(uint(attr.Size - 1))
	q.mask = uint16(1<<n - 1)
	if n < 16 {
		q.genBy = 1 << n
	}
	q.resize(attr.Size)
	return q
}

// resize sets the number of entries, before the first command. It doesn't change the layout of a CID: the transport
// uses the size that it was asked for.
func (q *Queue) resize(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.attr.Size = size
	depth := size - 1 // a queue with size commands couldn't be told from an empty one
	q.slots = make([]slot, depth)
	q.free = make([]uint16, depth)
	if q.attr.QID == 0 {
		q.reserved = max(0, min(urgentCommands, depth-ordinaryLeast))
	}
	for i := range q.slots {
		q.slots[i].cid = uint16(i)
		q.free[i] = uint16(depth - 1 - i)
	}
}

// ID is the queue identifier; 0 is the admin queue.
func (q *Queue) ID() uint16 { return q.attr.QID }

// Size is the number of entries that the controller agreed to.
func (q *Queue) Size() int { return q.attr.Size }

// Depth is the number of commands that can be outstanding at once: Size - 1, because a full queue keeps one entry
// free. Further requests wait their turn. The admin queue keeps some of them for commands of the host itself.
func (q *Queue) Depth() int { return len(q.slots) }

// Counters returns the queue's counters.
func (q *Queue) Counters() *QueueCounters { return &q.counters }

// Local is the local address of the queue's connection.
func (q *Queue) Local() netip.AddrPort { return q.tq.Local() }

// outstanding reports whether the command has not been answered yet.
func (q *Queue) outstanding(cid uint16) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &q.slots[cid&q.mask]
	return s.req != nil && s.cid == cid
}

// Submit sends the commands of rs, in order and as one batch. It neither blocks nor allocates. Requests that find
// the queue full wait in a list linked through the requests themselves, and are sent as others end. Each request
// ends with a call of Done, even if the connection is gone: then Err says so, Done may be called before Submit
// returns, and Done must not submit to this queue again. The caller may reuse the slice when Submit returns.
func (q *Queue) Submit(rs []*Request) {
	q.mu.Lock()
	if q.reason != nil {
		err := q.reason
		q.mu.Unlock()
		for _, r := range rs {
			q.cut(r, err, false)
		}
		return
	}
	n := 0
	if q.waiting.empty() {
		n = max(0, min(len(rs), len(q.free)-q.reserved))
	}
	for _, r := range rs[:n] {
		q.assign(r)
	}
	for _, r := range rs[n:] {
		q.waiting.push(r)
	}
	if n > 0 {
		q.submitting.Add(1)
	}
	q.mu.Unlock()
	if n < len(rs) {
		q.counters.Waited.Add(uint64(len(rs) - n))
	}
	if n > 0 {
		q.send(rs[:n])
	}
}

// SubmitOne is Submit for one request.
func (q *Queue) SubmitOne(r *Request) {
	r.self[0] = r
	q.Submit(r.self[:])
}

// submitUrgent is SubmitOne, except that the request may take a reserved slot, and that if it has to wait, it does so
// before all others that aren't urgent.
func (q *Queue) submitUrgent(r *Request) {
	q.mu.Lock()
	if !q.ending && len(q.free) == 0 {
		q.urgent.push(r)
		q.mu.Unlock()
		q.counters.Waited.Add(1)
		return
	}
	if !q.ending {
		q.assign(r)
		q.submitting.Add(1)
		q.mu.Unlock()
		r.self[0] = r
		q.send(r.self[:])
		return
	}
	err := q.reason
	q.mu.Unlock()
	q.cut(r, err, false)
}

// assign gives r a free slot and a CID that no recent command had. Called with mu held.
func (q *Queue) assign(r *Request) {
	i := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	s := &q.slots[i]
	s.cid += q.genBy
	if s.cid == 0xffff { // the error log uses it for "no command"
		s.cid += q.genBy
	}
	s.req, s.aborted = r, false
	s.tick = q.timer.started(r)
	r.Slot, r.qid = i, q.attr.QID
	r.Err = nil
	r.Cmd.SetCID(s.cid)
}

// send passes requests that have slots to the transport. The caller has incremented submitting.
func (q *Queue) send(rs []*Request) {
	q.counters.Submitted.Add(uint64(len(rs)))
	q.tq.Submit(rs)
	q.submitting.Add(-1)
	q.drainOnceIdle()
}

// sink is a Queue as its transport sees it.
type sink Queue

// Completed implements Sink.
func (s *sink) Completed(cqe *nvme.Completion) bool {
	q := (*Queue)(s)
	cid := cqe.CID()
	i := int(cid & q.mask)
	q.mu.Lock()
	if i >= len(q.slots) || q.slots[i].req == nil || q.slots[i].cid != cid {
		q.mu.Unlock()
		return false
	}
	r := q.slots[i].req
	q.release(uint16(i))
	var next *Request
	reason := q.reason
	if !q.ending {
		if next = q.nextWaiting(); next != nil {
			q.assign(next)
			q.submitting.Add(1)
		}
	}
	q.mu.Unlock()
	r.CQE = *cqe
	if next != nil {
		next.self[0] = next
		q.send(next.self[:])
	}
	if reason != nil && r.CQE.Status().Code() == nvme.StatusCommandSequence {
		q.cut(r, reason, false) // the controller was no longer ready when it arrived, and has executed nothing
		return true
	}
	q.counters.completed(r)
	r.end()
	return true
}

// nextWaiting removes and returns the request that gets the slot that was just freed, or returns nil. Called with mu
// held.
func (q *Queue) nextWaiting() *Request {
	if r := q.urgent.pop(); r != nil {
		return r
	}
	if q.reason == nil && len(q.free) > q.reserved {
		return q.waiting.pop()
	}
	return nil
}

// release frees a slot. Called with mu held.
func (q *Queue) release(i uint16) {
	q.timer.finished(q.slots[i].req)
	q.slots[i].req = nil
	q.free = append(q.free, i)
}

// Closed implements Sink: the connection is gone.
func (s *sink) Closed(err error) {
	q := (*Queue)(s)
	reason := q.owner.queueClosed(q, err)
	q.refuse(reason, true)
	q.timer.stop()
	q.ended.Store(true)
	q.drainOnceIdle()
}

// refuse makes the queue reject new requests because of err, with urgentToo even the urgent ones; of several errors the
// first one counts.
func (q *Queue) refuse(err error, urgentToo bool) {
	q.mu.Lock()
	if q.reason == nil {
		q.reason = err
	}
	q.ending = q.ending || urgentToo
	q.mu.Unlock()
}

// drainOnceIdle drains the queue if the connection is gone and no Submit is in progress. It looks at ended first: from
// then on the queue refuses requests, so no Submit begins any more. Before, one may begin as soon as there is none.
func (q *Queue) drainOnceIdle() {
	if q.ended.Load() && q.submitting.Load() == 0 {
		q.drain()
	}
}

// drain gives all requests back; only the first call has an effect.
func (q *Queue) drain() {
	if q.drained.Swap(true) {
		return
	}
	for {
		q.mu.Lock()
		r, sent := q.take()
		err := q.reason
		q.mu.Unlock()
		if r == nil {
			break
		}
		q.cut(r, err, sent)
	}
	close(q.gone)
}

// take removes and returns a request of the table, or else one of the waiting list, which wasn't sent. Called with
// mu held.
func (q *Queue) take() (r *Request, sent bool) {
	if len(q.free) < len(q.slots) {
		for i := range q.slots {
			if r := q.slots[i].req; r != nil {
				q.release(uint16(i))
				return r, true
			}
		}
	}
	if r := q.urgent.pop(); r != nil {
		return r, false
	}
	return q.waiting.pop(), false
}

// cut ends a request that will get no response. sent says whether the transport was given it.
func (q *Queue) cut(r *Request, err error, sent bool) {
	r.qid = q.attr.QID
	r.Err, r.sent = err, sent
	r.CQE.Reset()
	r.CQE.SetStatus(nvme.StatusHostPathError)
	if errors.Is(err, ErrClosed) {
		r.CQE.SetStatus(nvme.StatusHostAborted)
	}
	q.counters.Cut.Add(1)
	r.end()
}

// close ends the connection because of err and waits until every request has been given back. It must not be called
// from Done.
func (q *Queue) close(err error) {
	q.refuse(err, true)
	_ = q.tq.Close() // Closed was given the same error
	<-q.gone
}
