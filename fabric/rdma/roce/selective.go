package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Between two devices of our kind only what is lost is sent again. The responder holds what came ahead of a lost packet
// (reorder) and reports it in a SelectiveAck; the requester places answers to READs in any order and asks only for the
// missing ones. So next never goes back.
//
// That the peer is of our kind is known from options in the messages that made the
// connection. With any other peer everything from the lost packet on is sent again.

// scored makes sure that there is a scoreboard.
func (q *qp) scored() *scoreboard {
	r := &q.req
	if r.score == nil {
		s := q.d.scoreboards.take()
		*s = scoreboard{answered: r.una, top: r.una, probe: r.una, latest: r.una.Add(-1)}
		r.score = s
	}
	return r.score
}

// dropScore gives the scoreboard back.
func (q *qp) dropScore() {
	if s := q.req.score; s != nil {
		q.req.score = nil
		q.d.scoreboards.give(s)
	}
}

// payloadAt returns how many bytes packet k of w carries, or brings.
func (w *sendWQE) payloadAt(k int) int { return min((k+1)*w.mtu, w.length) - k*w.mtu }

// uncount takes packet k of w out of the window that it counts in, because it arrived or because it is lost.
func (q *qp) uncount(w *sendWQE, k int, arrived bool) {
	switch {
	case w.windowed():
		n := w.cost(k, k+1)
		if arrived {
			q.arrived(n)
		} else {
			q.withdrawn(n)
		}
	case w.op == verbs.WRRDMARead:
		n := w.payloadAt(k)
		if arrived {
			q.readsHere(n)
		} else {
			q.readsWithdrawn(n)
		}
	}
}

// arrive notes that packet k of w, or the answer with its PSN, which was missing, has arrived.
func (q *qp) arrive(w *sendWQE, k int, now time.Duration) {
	r, s, psn := &q.req, q.req.score, w.first.Add(k)
	if s.isLost(psn) {
		s.clearLost(psn)
	} else {
		q.uncount(w, k, true)
	}
	s.setArrived(psn)
	s.heard(psn, now, q.path.rttMin.value())
	if r.sampleAt != 0 && r.samplePSN == psn {
		q.path.sample(now-r.sampleAt, now)
		r.sampleAt = 0
	}
}

// miss takes packet k of w for lost, unless it has arrived, or was sent again so recently that it may yet arrive. It
// returns how many packets are newly taken for lost: 1 or 0.
func (q *qp) miss(w *sendWQE, k int, now, hold time.Duration) int {
	r, s, psn := &q.req, q.req.score, w.first.Add(k)
	if s.hasArrived(psn) || s.isLost(psn) || s.again(psn, now, hold) {
		return 0
	}
	q.uncount(w, k, false)
	s.setLost(psn)
	if r.samplePSN == psn {
		r.sampleAt = 0
	}
	return 1
}

// missOpen is miss for the packets of w from psn to end.
func (q *qp) missOpen(w *sendWQE, psn, end wire.PSN, now, hold time.Duration) (missed int) {
	s := q.req.score
	for psn = s.nextOpen(psn, end); psn.Before(end); psn = s.nextOpen(psn.Next(), end) {
		missed += q.miss(w, psn.Diff(w.first), now, hold)
	}
	return missed
}

// outstandingFrom calls f for the requests that have sent packets from psn on, oldest first, with the first such
// packet. f returns false to stop.
func (q *qp) outstandingFrom(psn wire.PSN, f func(w *sendWQE, k int) bool) {
	r := &q.req
	for i := r.head; i != r.tail; i++ {
		w := q.sq.at(i)
		if !w.started || w.packets > 0 && w.at(r.max) <= 0 {
			return
		}
		if k := w.at(psn); w.packets > 0 && k < w.packets && !f(w, max(0, k)) {
			return
		}
	}
}

// sentPackets returns how many packets of w were sent, or asked for, so far.
func (q *qp) sentPackets(w *sendWQE) int { return w.before(q.req.max) }

// executedBefore records that the peer has executed everything before psn: SENDs and WRITEs have arrived, and an answer
// that isn't here is lost, since answers come in order.
func (q *qp) executedBefore(psn wire.PSN, now time.Duration) {
	r := &q.req
	if r.score == nil {
		lost, open := q.openReadBefore(psn)
		if !open {
			q.advance(psn, now)
			return
		}
		q.advance(lost, now)
	}
	s := q.scored()
	if psn.After(s.answered) {
		s.answered = psn
	}
	missed, hold := 0, q.resendHold()
	q.outstandingFrom(r.una, func(w *sendWQE, k int) bool {
		n := w.before(s.answered)
		psn, end := w.first.Add(k), w.first.Add(n)
		if w.windowed() {
			for psn = s.nextMissing(psn, end); psn.Before(end); psn = s.nextMissing(psn, end) {
				q.arrive(w, psn.Diff(w.first), now)
			}
		} else {
			missed += q.missOpen(w, psn, end, now, hold)
		}
		return n == w.packets
	})
	q.d.wakeForWindow(q.path)
	if missed > 0 {
		q.d.counters.inc(ImpliedNAKSeqErr)
		q.d.wakeForReads(q.path)
	}
	q.settle(now)
	q.missed(missed, &q.path.reads, now)
}

// settle moves una to the first packet that is missing.
func (q *qp) settle(now time.Duration) {
	r, s := &q.req, q.req.score
	psn := r.una
	for psn.Before(s.answered) && s.hasArrived(psn) {
		psn = psn.Next()
	}
	for !r.reads.empty() && !psn.Before(r.reads.front().end) {
		r.reads.pop()
	}
	if !r.reads.empty() && r.reads.front().next.Before(psn) {
		r.reads.front().next = psn
	}
	q.advance(psn, now)
	switch {
	case !r.una.Before(s.top):
		q.dropScore()
	case s.isLost(r.una): // now it may leave whatever the windows hold
		q.d.markReady(q)
	}
}

// missed has n packets that are newly taken for lost sent again; w is the window that they counted in. It is a retry if
// the oldest one had been sent again before: others that arrive meanwhile keep the timer from finding that.
func (q *qp) missed(n int, w *window, now time.Duration) {
	s, una := q.req.score, q.req.una
	if n > 0 {
		w.foundLost(n*q.mtu, q.path, now)
		q.d.markReady(q)
		if s.isLost(una) && s.wasSentAgain(una) && !q.countRetry(now) {
			return
		}
	}
	if s != nil {
		q.restartTimer(now)
	}
}

// onSelectiveAck takes the peer's list of what has arrived behind a gap.
func (q *qp) onSelectiveAck(p *wire.Packet, now time.Duration) {
	r := &q.req
	if !r.outstanding(p.PSN) {
		return
	}
	q.d.counters.inc(PacketSeqErr)
	list := wire.Arrived(p.Payload)
	last := min(list.Len(), r.max.Diff(p.PSN)) - 1
	for last >= 0 && !list.Has(last) {
		last--
	}
	q.executedBefore(p.PSN, now)
	q.recant(p.PSN, now)
	missed, hold, s := 0, q.resendHold(), q.scored()
	if last >= 0 {
		s.heard(p.PSN.Add(last), now, q.path.rttMin.value())
	}
	q.outstandingFrom(p.PSN, func(w *sendWQE, k int) bool {
		at := w.first.Diff(p.PSN)
		if !w.windowed() {
			return at+k < last
		}
		n := min(q.sentPackets(w), last+1-at)
		end := w.first.Add(n)
		for psn := s.nextMissing(w.first.Add(k), end); psn.Before(end); psn = s.nextMissing(psn.Next(), end) {
			if k := psn.Diff(w.first); list.Has(at + k) {
				q.arrive(w, k, now)
			} else {
				missed += q.miss(w, k, now, hold)
			}
		}
		return at+n <= last
	})
	for i := range r.reads.n {
		f := r.reads.at(i)
		if at := f.first.Diff(p.PSN); at >= 0 && at < last && !list.Has(at) {
			missed += q.missRead(f, now, hold)
		}
	}
	q.d.wakeForWindow(q.path)
	q.missed(missed, &q.path.window, now)
}

// missRead takes a READ request or atomic, or what is missing of its answer, for lost.
func (q *qp) missRead(f *read, now, hold time.Duration) int {
	return q.missOpen(q.sq.at(f.wqe), f.next, f.end, now, hold)
}

// onAnswer returns the READ or atomic that the answer at psn, in any order, belongs to; nil if the answer is here
// already, or was never asked for.
func (q *qp) onAnswer(psn wire.PSN) *read {
	r := &q.req
	if !r.outstanding(psn) || r.score != nil && r.score.hasArrived(psn) {
		return nil
	}
	for i := range r.reads.n {
		if f := r.reads.at(i); psn.Before(f.end) {
			if psn.Before(f.first) {
				return nil
			}
			return f
		}
	}
	return nil
}

// answeredAt notes that the answer at psn has been taken.
func (q *qp) answeredAt(w *sendWQE, psn wire.PSN, now time.Duration) {
	q.scored()
	q.arrive(w, psn.Diff(w.first), now)
	q.d.wakeForReads(q.path)
	q.executedBefore(psn.Next(), now)
}

// missAll takes for lost everything from psn on that isn't known to have arrived and was not sent again less than hold
// ago.
func (q *qp) missAll(psn wire.PSN, now, hold time.Duration) {
	q.scored()
	q.outstandingFrom(psn, func(w *sendWQE, k int) bool {
		q.missOpen(w, w.first.Add(k), w.first.Add(q.sentPackets(w)), now, hold)
		return true
	})
	q.wakeAfterLoss()
}

// dropped takes everything from psn on for lost because the peer has dropped it, or may have, including what it had
// held.
func (q *qp) dropped(psn wire.PSN, now time.Duration) {
	q.scored()
	q.outstandingFrom(psn, func(w *sendWQE, k int) bool {
		for end := q.sentPackets(w); k < end && w.windowed(); k++ {
			q.missHeld(w, k)
		}
		return true
	})
	q.missAll(psn, now, 0)
}

// missHeld takes packet k of w, a SEND or WRITE, for lost if it was known to have arrived.
func (q *qp) missHeld(w *sendWQE, k int) {
	if s, at := q.req.score, w.first.Add(k); s.hasArrived(at) {
		s.clearArrived(at)
		s.setLost(at)
	}
}

// recant is dropped for when the peer says that psn, which it had, is missing: it dropped what it held when no receive
// was posted, and its RNR NAK was lost.
func (q *qp) recant(psn wire.PSN, now time.Duration) {
	if s := q.scored(); !psn.Before(s.answered) && s.hasArrived(psn) {
		q.dropped(psn, now)
	}
}

// wakeAfterLoss wakes the queue pairs that can go on now that windows hold less.
func (q *qp) wakeAfterLoss() {
	q.d.wakeForWindow(q.path)
	q.d.wakeForReads(q.path)
	q.d.markReady(q)
}

// accountEach is account while single packets are known to be missing: those before psn have all arrived, so they no
// longer count in a window, and what is known of them is forgotten.
func (q *qp) accountEach(psn wire.PSN) {
	for at := q.req.una; at != psn; at = at.Next() {
		q.req.score.forget(at)
	}
}

// onAckOfOurs takes an ACKNOWLEDGE from a peer of our kind, for something outstanding.
func (q *qp) onAckOfOurs(p *wire.Packet, now time.Duration) {
	switch syndrome := p.AETH.Syndrome; {
	case syndrome.IsACK():
		q.executedBefore(p.PSN.Next(), now)
	case syndrome.IsRNR():
		q.executedBefore(p.PSN, now)
		q.onRNR(p.PSN, syndrome.RNRTimer(), now)
	case syndrome == wire.NAKPSNSequenceError: // it has no room for what came ahead
		q.d.counters.inc(PacketSeqErr)
		q.executedBefore(p.PSN, now)
		q.recant(p.PSN, now)
		q.missAll(p.PSN, now, q.resendHold())
		q.missed(1, &q.path.window, now)
	default:
		q.executedBefore(p.PSN, now)
		q.onNAK(syndrome, p.PSN)
	}
}

// onReadPart places the data of an answer that came out of order.
func (q *qp) onReadPart(p *wire.Packet, now time.Duration) {
	f := q.onAnswer(p.PSN)
	if f == nil {
		return
	}
	w := q.sq.at(f.wqe)
	k := p.PSN.Diff(w.first)
	if w.op != verbs.WRRDMARead || len(p.Payload) != w.payloadAt(k) ||
		p.Opcode.Headers()&wire.HasAETH != 0 && !p.AETH.Syndrome.IsACK() {
		q.badResponse(p.PSN, now)
		return
	}
	if !q.d.scatter(q.pd, w.sges, k*q.mtu, p.Payload) {
		q.executedBefore(p.PSN, now)
		q.failAt(p.PSN, verbs.WCLocProtErr)
		return
	}
	q.answeredAt(w, p.PSN, now)
}

// onAtomicPart takes the answer of an atomic in any order.
func (q *qp) onAtomicPart(p *wire.Packet, now time.Duration) {
	f := q.onAnswer(p.PSN)
	if f == nil {
		return
	}
	if w := q.sq.at(f.wqe); q.takeAtomic(w, p, now) {
		q.answeredAt(w, p.PSN, now)
	}
}
