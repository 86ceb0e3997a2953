package roce

import (
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

type responseKind uint8

const (
	responseAck  responseKind = iota // ACK or NAK
	responseRead                     // packets psn … end−1, made when they leave
	responseAtomic
)

// response is an answer that waits to be sent.
type response struct {
	kind     responseKind
	syndrome wire.Syndrome
	started  bool // READ: the FIRST has left
	repeated bool // READ: to a request that came again
	psn, end wire.PSN
	msn      wire.MSN

	r     *region // READ: what is left
	key   uint32
	va    uint64
	left  int
	value uint64 // atomic
}

// responseQueue keeps answers in the order of the requests: an ACK must not overtake the data of an earlier READ, which
// the peer would take for lost. Consecutive ACKs are merged, so that a batch of messages costs one packet.
type responseQueue struct {
	ring    []response
	head, n int
}

func (u *responseQueue) init(limit int) {
	u.ring = make([]response, limit)
	u.clear()
}

func (u *responseQueue) clear()           { u.head, u.n = 0, 0 }
func (u *responseQueue) empty() bool      { return u.n == 0 }
func (u *responseQueue) front() *response { return &u.ring[u.head] }

func (u *responseQueue) back() *response {
	i := u.head + u.n - 1
	if i >= len(u.ring) {
		i -= len(u.ring)
	}
	return &u.ring[i]
}

// onlyAck reports whether a positive ACK is all there is.
func (u *responseQueue) onlyAck() bool {
	return u.n == 1 && u.front().kind == responseAck && u.front().syndrome.IsACK()
}

// fullOf reports whether there is no room left for n more answers with an ACK each.
func (u *responseQueue) fullOf(n int) bool { return u.n >= len(u.ring)-2-2*n }

// full reports whether only the two places for ACKs are left: for one behind the last READ, and for a NAK.
func (u *responseQueue) full() bool { return u.n >= len(u.ring)-2 }

func (u *responseQueue) pop() {
	u.n--
	if u.head++; u.n == 0 || u.head == len(u.ring) {
		u.head = 0 // the places used last are in the caches
	}
}

// push returns the place for one more, which the caller writes.
func (u *responseQueue) push() *response {
	u.n++
	return u.back()
}

func (u *responseQueue) pushAck(s wire.Syndrome, psn wire.PSN, msn wire.MSN) {
	var r *response
	switch {
	case u.n > 0 && u.back().kind == responseAck:
		if r = u.back(); s.IsACK() && psn.Before(r.psn) {
			return // the one that waits says as much
		}
	case u.n == len(u.ring):
		return // a peer that repeats itself so often may repeat this too
	default:
		r = u.push()
	}
	*r = response{kind: responseAck, syndrome: s, psn: psn, end: psn.Next(), msn: msn}
}

// unsay takes back a NAK for a gap, if it is the newest answer: the packet that it asks for is here. What it
// acknowledges stays acknowledged.
func (u *responseQueue) unsay() bool {
	if u.empty() || u.back().kind != responseAck || u.back().syndrome != wire.NAKPSNSequenceError {
		return false
	}
	r := u.back()
	r.syndrome, r.psn, r.end = wire.ACK, r.psn.Add(-1), r.psn
	return true
}

func (u *responseQueue) pushRead(psn, end wire.PSN, reg *region, h *wire.RETH) {
	*u.push() = response{kind: responseRead, psn: psn, end: end, r: reg, key: h.RKey, va: h.VA, left: int(h.Length)}
}

func (u *responseQueue) pushAtomic(psn wire.PSN, value uint64) {
	*u.push() = response{kind: responseAtomic, psn: psn, end: psn.Next(), value: value}
}

// dropFrom removes the newest answers as far as they concern psn or later, and reports whether a NAK was among them.
// The answer to a READ that has begun to leave goes on: on an ACK in the middle of it, even an old one, Linux's rxe
// forgets that it had a FIRST, and takes the next MIDDLE for an error of ours.
func (u *responseQueue) dropFrom(psn wire.PSN) (nak bool) {
	for u.n > 0 && psn.Before(u.back().end) && !u.back().started {
		if r := u.back(); r.kind == responseAck && !r.syndrome.IsACK() {
			nak = true
		}
		u.n--
	}
	return nak
}

// emitResponses puts answers together, a bounded number of them at a time, so that a peer that asks for much at once is
// not overrun, and others get their turn. A peer of our kind asks for no more than it has room for.
func (q *qp) emitResponses(t *txBatch) emitResult {
	u := &q.resp.queue
	quota := answerQuota
	if q.selective {
		quota = qpQuota
	}
	for ; !u.empty(); quota-- {
		if quota == 0 || t.full() {
			return noRoom
		}
		r := u.front()
		p := &t.packet
		p.AETH = wire.AETH{Syndrome: wire.ACK, MSN: q.resp.msn}
		t.gathered = t.gathered[:0]
		switch r.kind {
		case responseAck:
			q.emitAck(t)
			continue
		case responseAtomic:
			q.header(p, wire.RCAtomicAcknowledge, r.psn)
			p.AtomicAckETH.OrigRemDt = r.value
			t.add(q, 0)
		case responseRead:
			if !q.emitReadResponse(t, r) {
				return blocked
			}
		}
		if r.psn = r.psn.Next(); r.psn == r.end {
			u.pop()
		}
	}
	return blocked
}

// emitAck makes the ACKNOWLEDGE packet at the front of the queue.
func (q *qp) emitAck(t *txBatch) {
	u := &q.resp.queue
	r := u.front()
	q.header(&t.packet, wire.RCAcknowledge, r.psn)
	t.packet.AETH = wire.AETH{Syndrome: r.syndrome, MSN: r.msn}
	t.gathered = t.gathered[:0]
	if r.syndrome == wire.NAKPSNSequenceError && q.selective && q.resp.held != nil {
		q.listArrived(t, r.psn)
	}
	t.add(q, totalBytes(t.gathered))
	u.pop()
}

func totalBytes(parts [][]byte) (n int) {
	for _, b := range parts {
		n += len(b)
	}
	return n
}

// emitReadResponse makes the next packet of a READ's answer. If the memory is no longer registered the peer gets a NAK
// instead, or nothing if it has had an answer before.
func (q *qp) emitReadResponse(t *txBatch, r *response) bool {
	n := min(q.mtu, r.left)
	last := r.psn.Next() == r.end
	if n > 0 {
		b, ok := r.r.slice(r.va, n)
		if !ok || r.r.key != r.key {
			if r.repeated {
				q.resp.queue.pop()
				q.d.markReady(q)
				return false
			}
			q.d.counters.inc(RespRemoteAccessErrors)
			*r = response{kind: responseAck, syndrome: wire.NAKRemoteAccessError, psn: r.psn, end: r.psn.Next(), msn: q.resp.msn}
			q.resp.queue.n = 1
			q.faultLater(verbs.WCSuccess, verbs.EventQPAccess)
			q.d.markReady(q)
			return false
		}
		t.gathered = append(t.gathered, b)
		r.r.batch = t.gen
	}
	q.header(&t.packet, q.readResponseOpcode(r, last), r.psn)
	t.add(q, n)
	r.started = true
	r.va += uint64(n)
	r.left -= n
	return true
}

// readResponseOpcode returns the opcode of the next packet of r. A peer of our kind, which goes by PSNs alone, gets
// FIRST instead of MIDDLE: FIRST has an AETH, as LAST does, so that answers are of one size and make long trains.
func (q *qp) readResponseOpcode(r *response, last bool) wire.Opcode {
	switch {
	case !r.started && last:
		return wire.RCReadResponseOnly
	case !r.started, q.selective && !last:
		return wire.RCReadResponseFirst
	case last:
		return wire.RCReadResponseLast
	}
	return wire.RCReadResponseMiddle
}
