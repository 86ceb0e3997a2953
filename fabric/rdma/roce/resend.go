package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// What is sent again to a peer of our kind, and what it is asked for again: what is lost according to the scoreboard,
// in order, and a probe if nothing was heard for a while.

// resendHold returns how long a packet that was sent again is given to arrive.
func (q *qp) resendHold() time.Duration {
	return max(q.path.rtt+4*q.path.rttVar, minHold)
}

// probe sends again something that was not answered in time, so that the peer tells what it has: what was sent again
// before, or else the last packet that was sent.
func (q *qp) probe(now time.Duration) {
	r, s := &q.req, q.scored()
	hold := q.resendHold()
	var last *sendWQE
	q.outstandingFrom(r.una, func(w *sendWQE, k int) bool {
		last = w
		for end := q.sentPackets(w); k < end; k++ {
			if s.wasSentAgain(w.first.Add(k)) {
				q.miss(w, k, now, hold)
			}
		}
		return true
	})
	switch {
	case s.lostCount > 0:
	case last.windowed():
		k := q.sentPackets(last) - 1
		s.probe = last.first.Add(k)
		q.missHeld(last, k)
		q.miss(last, k, now, 0)
	default:
		q.probeRead(r.reads.at(r.reads.n-1), now)
	}
	q.wakeAfterLoss()
}

// probeRead asks again for the end of an answer, or for all of it if the peer may not have seen the request.
func (q *qp) probeRead(f *read, now time.Duration) {
	w, s := q.sq.at(f.wqe), q.req.score
	if !f.first.Before(s.answered) {
		s.probe = f.next
		q.missRead(f, now, 0)
		return
	}
	for s.probe = f.end.Add(-1); !s.probe.Before(f.next) && q.miss(w, s.probe.Diff(w.first), now, 0) == 0; {
		s.probe = s.probe.Add(-1)
	}
}

// emitLost sends again what is taken for lost. The first missing packet may always leave, and so may a probe: what
// fills the windows may be waiting for it, or be lost itself.
func (q *qp) emitLost(t *txBatch, now time.Duration) emitResult {
	r := &q.req
	for quota := qpQuota; r.score.lostCount > 0; quota-- {
		if quota == 0 || t.full() {
			return noRoom
		}
		psn := r.score.firstLost(r.una)
		if psn != r.una && q.hushed() {
			return blocked
		}
		if res := q.emitAgain(t, psn, now); res != emitted {
			return res
		}
		r.inBatch(t.gen, psn)
		q.sentAgain(now)
		if r.deadline == 0 {
			q.restartTimer(now)
		}
	}
	return emitted
}

// emitAgain sends the packet at psn again.
func (q *qp) emitAgain(t *txBatch, psn wire.PSN, now time.Duration) (res emitResult) {
	q.outstandingFrom(psn, func(w *sendWQE, k int) bool {
		switch {
		case w.windowed():
			res = q.emitDataAgain(t, w, k, now)
		case w.isAtomic():
			q.makeAtomic(&t.packet, w, psn)
			t.gathered = t.gathered[:0]
			t.add(q, 0)
			q.req.score.resent(psn, q.req.next, now)
			res = emitted
		default:
			res = q.emitReadAgain(t, w, psn, now)
		}
		return false
	})
	return res
}

// mayAlways reports whether the packet at psn may be sent again regardless of the windows.
func (q *qp) mayAlways(psn wire.PSN) bool { return psn == q.req.una || psn == q.req.score.probe }

func (q *qp) emitDataAgain(t *txBatch, w *sendWQE, k int, now time.Duration) emitResult {
	n := w.payloadAt(k)
	cost := n + packetCost
	psn := w.first.Add(k)
	if q.req.unreadable && psn == q.req.unreadableAt {
		return blocked
	}
	if !q.mayAlways(psn) && !q.maySendAgain(cost) {
		return waitsToSend
	}
	q.makeData(&t.packet, w, k*w.mtu, n, psn)
	t.packet.AckReq = true
	if !q.addData(t, w, k*w.mtu, n) {
		q.cantRead(psn) // the memory is no longer registered as it was when the packet was first sent
		return blocked
	}
	q.req.score.resent(psn, q.req.next, now)
	q.sent(cost)
	return emitted
}

// emitReadAgain asks again for the lost packets from psn on, as far as they are of one request. A responder that may
// not have executed that request gets it unchanged.
func (q *qp) emitReadAgain(t *txBatch, w *sendWQE, psn wire.PSN, now time.Duration) emitResult {
	s := q.req.score
	f := q.onAnswer(psn)
	end := psn.Next()
	for end != f.end && s.isLost(end) {
		end = end.Next()
	}
	off := psn.Diff(w.first) * q.mtu
	n := min(end.Diff(w.first)*q.mtu, w.length) - off
	if !q.mayAlways(psn) && !q.mayReadAgain(n) {
		return waitsToRead
	}
	q.makeRead(&t.packet, w, off, n, psn)
	t.gathered = t.gathered[:0]
	t.add(q, 0)
	for ; psn != end; psn = psn.Next() {
		q.req.score.resent(psn, q.req.next, now)
	}
	q.readsSent(n)
	return emitted
}
