package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// emitPacket makes the next packet of w.
func (q *qp) emitPacket(t *txBatch, w *sendWQE, now time.Duration) emitResult {
	var res emitResult
	var psns int
	switch {
	case w.op == verbs.WRRDMARead:
		psns, res = q.emitRead(t, w, now)
	case w.isAtomic():
		psns, res = q.emitAtomic(t, w, now)
	default:
		psns, res = q.emitData(t, w, now)
	}
	if res != emitted {
		return res
	}
	r := &q.req
	switch {
	case r.una == r.max:
		r.progressAt = now // nothing was out
	case r.waitedFrom != 0:
		r.progressAt += now - max(r.waitedFrom, r.progressAt)
	}
	r.waitedFrom = 0
	r.inBatch(t.gen, r.next)
	r.next = r.next.Add(psns)
	if r.next.After(r.max) {
		r.max = r.next
	} else {
		q.sentAgain(now)
	}
	if r.next == w.end() {
		r.cur = w.last(r.cur) + 1
		r.off = 0
	}
	if r.deadline == 0 {
		q.restartTimer(now)
	}
	return emitted
}

// header begins a packet of the queue pair.
func (q *qp) header(p *wire.Packet, op wire.Opcode, psn wire.PSN) {
	p.BTH = wire.BTH{
		Opcode: op, MigReq: true, PKey: wire.DefaultPKey, DestQP: wire.QPN(q.attr.DestQPN), PSN: psn,
	}
}

// emitData makes the next packet of a SEND or WRITE.
func (q *qp) emitData(t *txBatch, w *sendWQE, now time.Duration) (psns int, res emitResult) {
	r := &q.req
	if r.unreadable && r.next == r.unreadableAt {
		return 0, blocked
	}
	n := min(w.length-r.off, w.mtu)
	cost := n + packetCost
	if !q.maySend(cost) {
		return 0, waitsToSend
	}
	p := &t.packet
	last := q.makeData(p, w, r.off, n, r.next)
	r.sinceAckReq += cost
	p.AckReq = last && q.wantsAck(w) || 4*r.sinceAckReq >= q.path.window.size
	if !q.addData(t, w, r.off, n) {
		q.faultLocal(verbs.WCLocProtErr)
		return 0, blocked
	}
	r.unasked = len(t.packets)
	if p.AckReq {
		r.sinceAckReq, r.unasked = 0, 0
		r.sampleFrom(now)
	}
	r.off += n
	q.sent(cost)
	return 1, emitted
}

// makeData makes the headers of the packet with the n bytes at offset off of w, and reports
// whether it is the last one.
func (q *qp) makeData(p *wire.Packet, w *sendWQE, off, n int, psn wire.PSN) (last bool) {
	last = off+n == w.length
	if w.op == verbs.WRRDMAWrite {
		// Each packet is a WRITE of its own, as if that many had been posted: as all are of one size, trains are
		// longer, and none depends on another. For a peer of our kind SE, for which a WRITE has no other use, says that
		// the packet isn't the last of its request.
		q.header(p, wire.RCWriteOnly, psn)
		p.RETH = wire.RETH{VA: w.remoteAddr + uint64(off), RKey: w.rkey, Length: uint32(n)}
		p.Solicited = q.selective && !last
		if w.along {
			q.makeWriteSend(p, w)
		}
	} else {
		q.header(p, dataOpcode(w.op, off == 0, last), psn)
		p.RETH = wire.RETH{VA: w.remoteAddr, RKey: w.rkey, Length: uint32(w.length)}
		p.Solicited = last && w.flags&verbs.SendSolicited != 0
		if w.op == verbs.WRSendWithImm || w.op == verbs.WRRDMAWriteWithImm {
			p.ImmDt = wire.ImmDt(w.imm)
		}
		p.IETH.RKey = w.rkey
	}
	return last
}

// sampleFrom measures the round trip of the packet that is next, unless another one is being measured or it is a
// repetition.
func (r *requester) sampleFrom(now time.Duration) {
	if r.sampleAt == 0 && r.next == r.max {
		r.samplePSN, r.sampleAt = r.next, now
	}
}

// wantsAck reports whether the last packet of w asks for an ACK. It doesn't if nobody waits for the ACK and the next
// request, which is posted already, will ask for one. A retransmission always asks.
func (q *qp) wantsAck(w *sendWQE) bool {
	r := &q.req
	last := w.last(r.cur)
	if (w.flags|q.sq.at(last).flags)&verbs.SendSignaled != 0 || q.init.SQSigAll || last+1 == r.tail || r.next != r.max {
		return true
	}
	next := q.sq.at(last + 1)
	return !next.windowed() || next.isLocal() || next.flags&verbs.SendFence != 0
}

// addData adds the packet in t with n bytes at offset off of w's data.
func (q *qp) addData(t *txBatch, w *sendWQE, off, n int) bool {
	var onDemand bool
	if w.flags&verbs.SendInline != 0 {
		t.gathered = append(t.gathered[:0], w.inline[off:off+n])
	} else {
		var ok bool
		if t.gathered, onDemand, ok = q.d.gather(t.gathered[:0], q.pd, w.sges, off, n); !ok {
			return false
		}
	}
	if w.along {
		if t.message = q.message(q.sq.at(w.behind)); t.message == nil {
			return false
		}
	}
	q.takeAck(&t.packet)
	if onDemand {
		t.addOnDemand(q, n)
	} else {
		t.add(q, n)
	}
	return true
}

// dataOpcode returns the opcode of a packet of a SEND, or of a WRITE with Immediate, by its place in the message.
func dataOpcode(op verbs.WROpcode, first, last bool) wire.Opcode {
	send := op != verbs.WRRDMAWriteWithImm
	switch {
	case send && first && !last:
		return wire.RCSendFirst
	case send && !last:
		return wire.RCSendMiddle
	case first && !last:
		return wire.RCWriteFirst
	case !last:
		return wire.RCWriteMiddle
	case first:
		return onlyOpcode[op]
	}
	return lastOpcode[op]
}

var onlyOpcode = [...]wire.Opcode{
	verbs.WRSend:             wire.RCSendOnly,
	verbs.WRSendWithImm:      wire.RCSendOnlyWithImm,
	verbs.WRSendWithInv:      wire.RCSendOnlyWithInv,
	verbs.WRRDMAWriteWithImm: wire.RCWriteOnlyWithImm,
}

var lastOpcode = [...]wire.Opcode{
	verbs.WRSend:             wire.RCSendLast,
	verbs.WRSendWithImm:      wire.RCSendLastWithImm,
	verbs.WRSendWithInv:      wire.RCSendLastWithInv,
	verbs.WRRDMAWriteWithImm: wire.RCWriteLastWithImm,
}

// emitRead makes the next READ request of w. A large READ is requested in pieces that our receive buffer can take; a
// piece always ends at the same place, so that a repeated request stays inside the original one, as a responder
// demands.
func (q *qp) emitRead(t *txBatch, w *sendWQE, now time.Duration) (psns int, res emitResult) {
	r := &q.req
	if r.reads.full(r.next) {
		return 0, blocked
	}
	piece := q.readPiece()
	n := min(w.length-r.off, piece-r.off%piece)
	if q.selective { // a retry then asks for no more than one piece
		n = min(n, q.readStep())
	}
	if !q.mayRead(n) {
		return 0, waitsToRead
	}
	q.makeRead(&t.packet, w, r.off, n, r.next)
	t.gathered = t.gathered[:0]
	t.add(q, 0)
	psns = max(1, (n+q.mtu-1)/q.mtu)
	r.reads.push(read{wqe: r.cur, first: r.next, next: r.next, end: r.next.Add(psns)})
	r.sampleFrom(now)
	r.off += n
	q.readsSent(n)
	return psns, emitted
}

// readPiece returns the most that a READ asks for, in whole packets.
func (q *qp) readPiece() int { return (q.d.readPiece + q.mtu - 1) / q.mtu * q.mtu }

// readStep returns how much a READ asks for at once: a quarter of the window, but at least two large packets, or half
// of the window if that is less, and at least one packet.
func (q *qp) readStep() int {
	size := q.path.reads.size
	n := max(size/4, min(size/2, 2*wire.MaxPathMTU), q.mtu)
	return n - n%q.mtu
}

// makeRead makes a request for n bytes at offset off of w.
func (q *qp) makeRead(p *wire.Packet, w *sendWQE, off, n int, psn wire.PSN) {
	q.header(p, wire.RCReadRequest, psn)
	p.RETH = wire.RETH{VA: w.remoteAddr + uint64(off), RKey: w.rkey, Length: uint32(n)}
	q.takeAck(p)
}

func (q *qp) emitAtomic(t *txBatch, w *sendWQE, now time.Duration) (psns int, res emitResult) {
	r := &q.req
	if r.reads.full(r.next) {
		return 0, blocked
	}
	q.makeAtomic(&t.packet, w, r.next)
	t.gathered = t.gathered[:0]
	t.add(q, 0)
	r.reads.push(read{wqe: r.cur, first: r.next, next: r.next, end: r.next.Next()})
	r.sampleFrom(now)
	return 1, emitted
}

// makeAtomic makes the request of an atomic.
func (q *qp) makeAtomic(p *wire.Packet, w *sendWQE, psn wire.PSN) {
	p.AtomicETH = wire.AtomicETH{VA: w.remoteAddr, RKey: w.rkey, SwapAdd: w.compareAdd}
	op := wire.RCFetchAdd
	if w.op == verbs.WRAtomicCmpAndSwp {
		op = wire.RCCmpSwap
		p.AtomicETH.SwapAdd, p.AtomicETH.CompareDt = w.swap, w.compareAdd
	}
	q.header(p, op, psn)
}
