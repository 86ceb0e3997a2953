package roce

import (
	"encoding/binary"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// onResponse handles a packet that answers a request of q (IBTA 9.7.5, 9.7.7).
func (q *qp) onResponse(p *wire.Packet, now time.Duration) {
	if q.attr.State != verbs.RTS {
		q.d.counters.inc(WrongState)
		return
	}
	q.meet()
	q.heard(now)
	switch p.Opcode.Kind() {
	case wire.KindReadResponse:
		q.onReadResponse(p, now)
	case wire.KindAtomicAcknowledge:
		q.onAtomicAck(p, now)
	case wire.KindSelectiveAck:
		q.onSelectiveAck(p, now)
	default:
		q.onAck(p, now)
	}
}

// outstanding reports whether psn was sent and is not acknowledged.
func (r *requester) outstanding(psn wire.PSN) bool {
	return !psn.Before(r.una) && psn.Before(r.max)
}

// onAck handles an ACKNOWLEDGE: everything before its PSN is executed, and the PSN itself too if it is positive.
func (q *qp) onAck(p *wire.Packet, now time.Duration) {
	r := &q.req
	syndrome := p.AETH.Syndrome
	if !r.outstanding(p.PSN) {
		// Late, or the answer to a retransmission. A sane peer never sends an ACK of what was never sent, and it must
		// do no harm.
		if !p.PSN.Before(r.max) {
			q.d.counters.inc(BadResponse)
		}
		return
	}
	if q.selective {
		q.onAckOfOurs(p, now)
		return
	}
	switch {
	case syndrome.IsACK():
		q.ackedBefore(p.PSN.Next(), now)
	case syndrome.IsRNR():
		if q.ackedBefore(p.PSN, now) {
			q.onRNR(p.PSN, syndrome.RNRTimer(), now)
		}
	case syndrome == wire.NAKPSNSequenceError:
		q.d.counters.inc(PacketSeqErr)
		if q.ackedBefore(p.PSN, now) {
			q.retryFrom(p.PSN, now)
		}
	default:
		q.ackedBefore(p.PSN, now)
		q.onNAK(syndrome, p.PSN)
	}
}

// onNAK fails the request at psn, and with it the connection.
func (q *qp) onNAK(syndrome wire.Syndrome, psn wire.PSN) {
	c := &q.d.counters
	status := verbs.WCBadRespErr
	switch syndrome {
	case wire.NAKInvalidRequest:
		c.inc(ReqRemoteInvalidRequest)
		status = verbs.WCRemInvReqErr
	case wire.NAKRemoteAccessError:
		c.inc(ReqRemoteAccessErrors)
		status = verbs.WCRemAccessErr
	case wire.NAKRemoteOperationalErr:
		status = verbs.WCRemOpErr
	default:
		c.inc(BadResponse)
	}
	q.failAt(psn, status)
}

// failAt ends the connection because of the request at psn, which ends with status. If there are any before it, the
// first is a READ or atomic whose answer is lost: they are flushed.
func (q *qp) failAt(psn wire.PSN, status verbs.WCStatus) {
	q.d.quiesce()
	for r := &q.req; r.head != r.tail; r.head++ {
		w := q.sq.at(r.head)
		if !w.started || w.packets > 0 && w.at(psn) < w.packets {
			break
		}
		q.completeSend(w, verbs.WCWRFlushErr)
	}
	q.toError(status, verbs.EventQPFatal)
}

// ackedBefore handles the news that the peer has executed everything before psn. READs and atomics are complete only
// when their data is here: if one is still open its answer is lost, since answers come in order. Then it is retried,
// and false is returned.
func (q *qp) ackedBefore(psn wire.PSN, now time.Duration) bool {
	if lost, ok := q.openReadBefore(psn); ok {
		q.advance(lost, now)
		q.impliedNAK(lost, now)
		return false
	}
	q.advance(psn, now)
	return true
}

// openReadBefore returns the PSN of the first answer before psn that hasn't arrived. The queue of outstanding READs
// doesn't tell: a retry begins by emptying it.
func (q *qp) openReadBefore(psn wire.PSN) (lost wire.PSN, ok bool) {
	r := &q.req
	if q.attr.MaxRdAtomic == 0 {
		return 0, false
	}
	for i := r.head; i != r.tail; i++ {
		w := q.sq.at(i)
		switch {
		case !w.started || w.packets > 0 && w.at(psn) <= 0:
			return 0, false
		case w.packets == 0 || w.windowed() || w.at(r.una) >= w.packets:
		case w.at(r.una) > 0:
			return r.una, r.una.Before(psn)
		default:
			return w.first, true
		}
	}
	return 0, false
}

// impliedNAK retries from a READ or atomic whose answer at psn is lost.
func (q *qp) impliedNAK(psn wire.PSN, now time.Duration) {
	if q.retryFrom(psn, now) {
		q.d.counters.inc(ImpliedNAKSeqErr)
		q.path.reads.lost(now, q.path.roundTrip())
	}
}

// advance moves una to psn, which is between una and max, and completes what that acknowledges.
func (q *qp) advance(psn wire.PSN, now time.Duration) {
	r := &q.req
	if !r.una.Before(psn) {
		return
	}
	q.account(psn)
	r.una = psn
	goesOn := q.hushed()
	if r.next.Before(psn) {
		q.seek(psn) // acknowledged before a retry got to it
		goesOn = true
	}
	if r.sampleAt != 0 && r.samplePSN.Before(psn) {
		q.path.sample(now-r.sampleAt, now)
		r.sampleAt = 0
	}
	if r.backoff > 0 {
		q.path.distrust(r.timedFrom, r.repeatedAt, now)
	}
	r.retries, r.rnrRetries, r.backoff, r.progressAt = 0, 0, 0, now
	r.rnrUntil = 0
	q.restartTimer(now)
	q.completeSends()
	q.failUnreadable()
	if goesOn || r.cur != r.tail {
		q.d.markReady(q)
	}
}

// account returns to the window the bytes that are acknowledged before psn.
func (q *qp) account(psn wire.PSN) {
	r := &q.req
	if r.score != nil {
		q.accountEach(psn)
		return
	}
	if psn.After(r.next) {
		psn = r.next // the rest was withdrawn when the retry began
	}
	freed := 0
	for i := r.head; i != r.tail; i++ {
		w := q.sq.at(i)
		if !w.started || w.packets > 0 && w.at(psn) <= 0 {
			break
		}
		if w.packets > 0 && w.windowed() {
			lo, hi := max(0, w.at(r.una)), w.before(psn)
			if lo < hi {
				freed += w.cost(lo, hi)
			}
		}
	}
	if freed > 0 {
		q.arrived(freed)
		q.d.wakeForWindow(q.path)
	}
}

// seek makes psn the next one to send.
func (q *qp) seek(psn wire.PSN) {
	r := &q.req
	r.next = psn
	for r.cur = r.head; r.cur != r.tail; r.cur++ {
		w := q.sq.at(r.cur)
		if !w.started || w.packets > 0 && w.at(psn) < w.packets {
			r.off = 0
			if w.started {
				r.off = w.at(psn) * w.mtu
			}
			return
		}
	}
	r.off = 0
}

// awaited returns the oldest READ or atomic that isn't answered, if psn is the next packet of its answer; else nil,
// after it has started a retry if psn implies that the next packet is lost. If that one is already waiting to be asked
// for again, it may still arrive: the answer was late.
func (q *qp) awaited(psn wire.PSN, now time.Duration) *read {
	r := &q.req
	if r.reads.empty() || psn.Before(r.reads.front().next) || !psn.Before(r.max) {
		return nil // the answer to a repeated request
	}
	f := r.reads.front()
	if psn == f.next {
		return f
	}
	if lost := f.next; lost.Before(r.next) {
		q.advance(lost, now)
		q.impliedNAK(lost, now)
	}
	return nil
}

// inAnyOrder reports whether the answer at psn, of a peer of our kind, is taken wherever it belongs: it isn't the next
// one, or others are known to be missing.
func (q *qp) inAnyOrder(psn wire.PSN) bool {
	r := &q.req
	return q.selective && (r.score != nil || !r.reads.empty() && psn != r.reads.front().next)
}

// onReadResponse places the data of a READ. Responses are identified by PSN alone: after a partial retry some peers
// begin with FIRST and some continue with MIDDLE.
func (q *qp) onReadResponse(p *wire.Packet, now time.Duration) {
	r := &q.req
	if q.inAnyOrder(p.PSN) {
		q.onReadPart(p, now)
		return
	}
	f := q.awaited(p.PSN, now)
	if f == nil {
		return
	}
	w := q.sq.at(f.wqe)
	off := f.next.Diff(w.first) * q.mtu
	n := min(q.mtu, w.length-off)
	last := f.next.Next() == f.end
	if w.op != verbs.WRRDMARead || len(p.Payload) != n || p.Opcode.Ends() != last ||
		p.Opcode.Headers()&wire.HasAETH != 0 && !p.AETH.Syndrome.IsACK() {
		q.badResponse(p.PSN, now)
		return
	}
	if !q.d.scatter(q.pd, w.sges, off, p.Payload) {
		q.advance(p.PSN, now)
		q.toError(verbs.WCLocProtErr, verbs.EventQPFatal)
		return
	}
	f.next = f.next.Next()
	if last {
		r.reads.pop()
	}
	if r.next.Before(p.PSN.Next()) { // it was withdrawn when the retry began
		n = 0
	}
	q.readsHere(n)
	q.d.wakeForReads(q.path)
	q.advance(p.PSN.Next(), now)
}

// badResponse ends the connection: the peer's answer doesn't match the request. It may have come ahead of the answers to
// READs before it, which then aren't complete.
func (q *qp) badResponse(psn wire.PSN, now time.Duration) {
	q.d.counters.inc(BadResponse)
	q.executedBefore(psn, now)
	q.failAt(psn, verbs.WCBadRespErr)
}

// onAtomicAck stores the value that an atomic found, in the host's byte order.
func (q *qp) onAtomicAck(p *wire.Packet, now time.Duration) {
	if q.inAnyOrder(p.PSN) {
		q.onAtomicPart(p, now)
		return
	}
	f := q.awaited(p.PSN, now)
	if f == nil {
		return
	}
	if q.takeAtomic(q.sq.at(f.wqe), p, now) {
		q.req.reads.pop()
		q.advance(p.PSN.Next(), now)
	}
}

// takeAtomic stores the value that w found; it returns false if that ended the connection.
func (q *qp) takeAtomic(w *sendWQE, p *wire.Packet, now time.Duration) bool {
	if !w.isAtomic() {
		q.badResponse(p.PSN, now)
		return false
	}
	if !p.AETH.Syndrome.IsACK() {
		q.executedBefore(p.PSN, now)
		q.onNAK(p.AETH.Syndrome, p.PSN)
		return false
	}
	var value [8]byte
	binary.NativeEndian.PutUint64(value[:], p.AtomicAckETH.OrigRemDt)
	if !q.d.scatter(q.pd, w.sges, 0, value[:]) {
		q.executedBefore(p.PSN, now)
		q.failAt(p.PSN, verbs.WCLocProtErr)
		return false
	}
	return true
}
