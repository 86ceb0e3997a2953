package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// requester is the sending half of a queue pair (IBTA 9.7). Its work requests run through
//
//	head … cur … tail
//
// oldest not completed, being sent, next to be posted; and its packets through
//
//	una … next … max
//
// oldest not acknowledged, next to be sent, never sent before. A retry moves cur and next
// back to una; packets are always made anew from the work requests.
type requester struct {
	head, cur, tail uint32
	off             int // bytes of cur that are sent, or asked for

	una, next, max wire.PSN
	inflight       int // what una … next−1 count in the window
	sinceAckReq    int // the same since the last packet that asks for an ACK
	unasked        int // index behind the last packet in the batch, if that doesn't ask for an ACK; else 0

	reads     readQueue // READs and atomics sent and not answered
	readBytes int       // bytes that they will still bring

	score *scoreboard // nil while nothing is known to be missing

	unreadable   bool // the data of the packet at unreadableAt, which was sent before, can't be had
	unreadableAt wire.PSN

	batch     uint64   // the last batch that has packets of ours …
	batchFrom wire.PSN // … and the first of them

	retry

	// What only a waiting queue pair needs comes last, so that little of the rest has to be fetched into the caches.
	sendTurn, pathTurn, readTurn turn // in path.sendTurns and .readTurns, and Device.readTurns
}

// retry is what the requester remembers of its retries.
type retry struct {
	deadline   time.Duration // when the oldest packet is late; 0 while none is out …
	againAt    time.Duration // … and when it is sent again, which is later while q is hushed
	timedFrom  time.Duration // since when it is timed
	repeatedAt time.Duration // when something was last sent again
	progressAt time.Duration // last progress, or last ACK timeout counted
	waitedFrom time.Duration // since when what is to be sent again waits for room that others occupy; 0: it doesn't
	backoff    int           // doublings of the early timeout
	retries    int           // of the oldest packet, without progress
	rnrRetries int
	rnrUntil   time.Duration // no request leaves before; 0 if the peer is ready
	silent     bool          // what is out counts in no window
	backPSN    wire.PSN      // where the last retry began …
	backHold   time.Duration // … and until when another demand for it is an echo of the same one
	samplePSN  wire.PSN      // packet whose round trip is measured
	sampleAt   time.Duration // 0: none
}

func (r *requester) start(psn wire.PSN, maxReads int) {
	*r = requester{head: r.tail, cur: r.tail, tail: r.tail, una: psn, next: psn, max: psn}
	r.reads.init(maxReads)
}

// inBatch records that a batch has the packet at psn.
func (r *requester) inBatch(batch uint64, psn wire.PSN) {
	if r.batch != batch || psn.Before(r.batchFrom) {
		r.batch, r.batchFrom = batch, psn
	}
}

// emitResult is the result of an attempt to put a packet together.
type emitResult uint8

const (
	emitted     emitResult = iota
	blocked                // something has to happen first, which will make the QP ready
	noRoom                 // in this batch
	waitsToSend            // for room in the path's window
	waitsToRead            // for room for the answers
	notYet                 // it belongs to a later part of the batch
)

// emitRequests puts request packets together, only those of WRITEs if writes is set, and notes whether there are more.
func (q *qp) emitRequests(t *txBatch, writes bool, now time.Duration) {
	switch q.emitSome(t, writes, now) {
	case noRoom:
		q.more = true
	case notYet:
		q.later = true
	case blocked:
		q.waitNotToSend()
		q.waitNotToRead()
	case waitsToSend:
		q.req.waitsFrom(now)
		q.waitNotToRead()
	case waitsToRead:
		q.req.waitsFrom(now)
		q.waitNotToSend()
	}
}

// waitsFrom records that what is to be sent waits for room, if it is to be sent again and nothing else is out.
func (r *requester) waitsFrom(now time.Duration) {
	if r.next == r.una && r.una != r.max && r.waitedFrom == 0 {
		r.waitedFrom = now
	}
}

// askAck makes the last packet of a batch ask for an ACK in any case, since it may be a while until the next one could.
func (r *requester) askAck(t *txBatch) {
	if r.unasked > 0 {
		t.askAck(r.unasked - 1)
		r.unasked, r.sinceAckReq = 0, 0
	}
}

// quota returns how many packets of the send queue a batch takes. If requests are small it is half of those that wait,
// within bounds: the peer works on one half while the other is put together. A large request soon after small ones
// isn't cut short for their sake.
func (q *qp) quota() int {
	r := &q.req
	for i := r.cur; i != r.tail && i-r.cur < quotaLooks; i++ {
		if w := q.sq.at(i); w.length > q.carries(w) {
			return qpQuota
		}
	}
	return min(max(int(r.tail-r.cur)/2, minQuota), qpQuota)
}

// emitSome puts packets together until something stops it.
func (q *qp) emitSome(t *txBatch, writes bool, now time.Duration) emitResult {
	r := &q.req
	if r.rnrUntil != 0 {
		return blocked
	}
	if r.score != nil && r.score.lostCount > 0 {
		if res := q.emitLost(t, now); res != emitted {
			return res
		}
	}
	for quota := q.quota(); r.cur != r.tail && !q.fault; quota-- {
		if quota == 0 || t.full() {
			return noRoom
		}
		w := q.sq.at(r.cur)
		if writes && !w.isWrite() {
			return notYet
		}
		if r.next.Diff(r.una) > maxOutstanding || r.next != r.una && q.hushed() || !w.started && !q.begin(t, w) {
			return blocked
		}
		if w.packets == 0 {
			r.cur++
			q.completeSends()
			continue
		}
		if res := q.emitPacket(t, w, now); res != emitted {
			return res
		}
	}
	return blocked
}

// begin starts a work request whose turn has come: a local operation is executed, any other request gets its PSNs. It
// returns false if the request has to wait, or failed.
func (q *qp) begin(t *txBatch, w *sendWQE) bool {
	r := &q.req
	if w.flags&verbs.SendFence != 0 && !r.reads.empty() {
		return false
	}
	switch w.op {
	case verbs.WRBindMW:
		if !w.mw.bind(q, w.rkey, &w.bind) {
			q.faultLocal(verbs.WCMWBindErr)
			return false
		}
	case verbs.WRLocalInv:
		window := q.d.rkeys.lookup(w.rkey)
		if !q.d.invalidate(q, w.rkey) {
			q.faultLocal(verbs.WCLocQPOpErr)
			return false
		}
		if window.batch == t.gen {
			// The batch has the answer to a READ through the window: the request is complete when that has left, as if
			// it were a packet of its own.
			w.started, w.first = true, r.next
			r.inBatch(t.gen, r.next.Add(-1))
			q.more = true
			return false
		}
	default:
		w.first = r.next
		q.cut(w)
		if w.op == verbs.WRRDMAWrite {
			q.takeAlong(w)
		}
	}
	w.started = true
	return true
}

// cut decides how many packets w is cut into, and how long they are. For a peer of our kind the packets of a SEND have
// one size, as far as possible: with those of other SENDs they make long trains, which a shorter packet would end.
func (q *qp) cut(w *sendWQE) {
	w.mtu = q.carries(w)
	w.packets = max(1, (w.length+w.mtu-1)/w.mtu)
	if w.isSend() && q.selective && w.packets > 1 {
		w.mtu = ((w.length+w.packets-1)/w.packets + 3) &^ 3 // only a message's last packet is padded
	}
}

// carries returns how many bytes of w one of its packets carries at most, or, if w is a READ, brings.
func (q *qp) carries(w *sendWQE) int {
	if w.isSend() {
		return q.sendMTU
	}
	return q.mtu
}

// faultLocal ends the work request that is being sent with an error of this side, once all requests before it are
// complete: until then it is tried again at each acknowledgement.
func (q *qp) faultLocal(status verbs.WCStatus) {
	if q.req.head == q.req.cur {
		q.faultLater(status, verbs.EventQPFatal)
	}
}

// cantRead records that the data of the packet at psn, which was sent, can't be had: its memory is no longer registered,
// or a page of it is missing. The work request fails when all before it are complete; until then nothing is sent from
// psn on.
func (q *qp) cantRead(psn wire.PSN) {
	r := &q.req
	if r.outstanding(psn) && (!r.unreadable || psn.Before(r.unreadableAt)) {
		r.unreadable, r.unreadableAt = true, psn
		q.failUnreadable()
	}
}

// failUnreadable ends the oldest work request if it is the one whose data can't be had.
func (q *qp) failUnreadable() {
	r := &q.req
	w := q.sq.at(r.head)
	switch {
	case !r.unreadable:
	case r.unreadableAt.Before(r.una): // it had been sent before, and arrived
		r.unreadable = false
	case w.at(r.unreadableAt) < w.packets:
		q.faultLater(verbs.WCLocProtErr, verbs.EventQPFatal)
	}
}

// completeSends completes what is acknowledged, in order.
func (q *qp) completeSends() {
	r := &q.req
	for r.head != r.tail {
		w := q.sq.at(r.head)
		if !w.started || w.packets > 0 && w.at(r.una) < w.packets {
			return
		}
		if r.batch == q.d.tx.gen && w.windowed() && w.at(r.batchFrom) < w.packets {
			// The ACK is a late one for a packet that is being sent again, or is for one that may not have left yet:
			// the memory belongs to its owner only after that.
			q.d.quiesce()
		}
		if r.head == r.cur { // a Local Invalidate that waited for a batch to leave, see begin
			r.cur++
		}
		r.head++
		q.completeSend(w, verbs.WCSuccess)
	}
}
