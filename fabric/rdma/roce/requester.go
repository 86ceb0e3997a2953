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

	unreadable bool // the packet at page can't be made, as a page of its data is missing
	page       wire.PSN

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
	switch {
	case w.isAtomic():
		w.packets = 1
	case w.isSend() && q.selective && w.packets > 1:
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

// missesPage records that a page of the data of the packet at psn is missing. The work request fails when all before it
// are complete; until then nothing is sent from psn on.
func (q *qp) missesPage(psn wire.PSN) {
	r := &q.req
	if r.outstanding(psn) && (!r.unreadable || psn.Before(r.page)) {
		r.unreadable, r.page = true, psn
		q.failUnreadable()
	}
}

// failUnreadable ends the oldest work request if it is the one that has the missing page.
func (q *qp) failUnreadable() {
	r := &q.req
	switch {
	case !r.unreadable:
	case r.page.Before(r.una): // it had been sent before, and arrived
		r.unreadable = false
	case r.page.Before(q.sq.at(r.head).end()):
		q.faultLater(verbs.WCLocProtErr, verbs.EventQPFatal)
	}
}

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
	if r.unreadable && r.next == r.page {
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

// completeSends completes what is acknowledged, in order.
func (q *qp) completeSends() {
	r := &q.req
	for r.head != r.tail {
		w := q.sq.at(r.head)
		if !w.started || w.packets > 0 && r.una.Before(w.end()) {
			return
		}
		if r.batch == q.d.tx.gen && w.windowed() && r.batchFrom.Before(w.end()) {
			// The ACK is a late one for a packet that is being sent again, or is for one that may not have left yet:
			// the memory belongs to its owner only after that.
			q.d.quiesce()
		}
		r.head++
		q.completeSend(w, verbs.WCSuccess)
	}
}
