package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// responder is the receiving half of a queue pair (IBTA 9.7.4, 9.9.3).
type responder struct {
	head, tail uint32 // receives posted

	expected wire.PSN
	msn      wire.MSN

	// The message that is arriving.
	message messageKind
	recvOff int // SEND: bytes placed
	sendCut int // SEND: bytes of its first packet
	write   writeTarget

	// A gap is reported once: nakAt is when, 0 if none is open; gapSeen is the PSN that arrived last behind it, and
	// gapTop the highest. quiet is set if the gap was made by an RNR NAK, to which the peer reacts by itself.
	nakAt   time.Duration
	gapSeen wire.PSN
	gapTop  wire.PSN
	quiet   bool

	queue   responseQueue
	records recordRing
	held    *reorder // nil while nothing is held
}

type messageKind uint8

const (
	messageNone messageKind = iota
	messageSend
	messageWrite
)

// writeTarget is where the rest of an RDMA WRITE goes.
type writeTarget struct {
	r     *region
	key   uint32
	va    uint64
	left  int
	first wire.PSN
}

func (rs *responder) start(psn wire.PSN, maxReads int) {
	rs.expected, rs.msn, rs.message = psn, 0, messageNone
	rs.nakAt, rs.quiet = 0, false
	rs.queue.init(4*maxReads + 4) // each READ with an ACK behind it, and as many repeated ones
	rs.records.init(maxReads)
}

// nakAgain is how long after a NAK another one may be sent for the same gap: the first one, or what it asked for, may
// have been lost.
const nakAgain = 10 * time.Millisecond

// onRequest takes a packet of a request, in RTR or RTS.
func (q *qp) onRequest(p *wire.Packet, now time.Duration) {
	if p.Opcode.Headers()&wire.HasAckPSN != 0 {
		q.onAckAlong(wire.PSN(p.AckPSN), now)
	}
	rs := &q.resp
	switch ahead := p.PSN.Diff(rs.expected); {
	case ahead > 0:
		q.onGap(p, now)
		return
	case ahead < 0:
		q.onDuplicate(p)
		return
	}
	unsaid := rs.nakAt != 0 && rs.queue.unsay()
	q.execute(p, now)
	if rs.held != nil {
		q.catchUp(now)
	}
	if unsaid {
		q.sayInstead(now)
	}
}

// sayInstead reports what is left of a gap whose NAK was taken back.
func (q *qp) sayInstead(now time.Duration) {
	rs := &q.resp
	switch {
	case q.attr.State == verbs.Err || rs.quiet: // this has been answered
	case rs.held != nil || !rs.gapTop.Before(rs.expected):
		rs.nakAt = max(now, 1)
		q.answer(wire.NAKPSNSequenceError, rs.expected)
	case rs.queue.onlyAck():
		q.answer(wire.ACK, rs.expected.Add(-1))
	}
}

// onGap takes a packet that came ahead of a lost one, and asks for the lost one, once. It asks again when the PSNs
// start anew without it, or after a while. A peer of our kind is told of each gap, and, when it asks, of what has
// arrived, and sends only what is missing.
func (q *qp) onGap(p *wire.Packet, now time.Duration) {
	rs := &q.resp
	q.d.counters.inc(OutOfSequence)
	again := rs.nakAt == 0 || !p.PSN.After(rs.gapSeen) || now-rs.nakAt >= nakAgain
	if q.selective && (p.AckReq || p.PSN != rs.gapSeen.Next()) {
		again = true
	}
	rs.gapSeen = p.PSN
	if rs.nakAt == 0 || p.PSN.After(rs.gapTop) {
		rs.gapTop = p.PSN
	}
	if rs.quiet {
		if !q.selective || now-rs.nakAt < wire.RNRTimer(q.attr.MinRNRTimer) {
			return
		}
		// Our RNR NAK was lost, and the peer may believe that what was held still is.
		rs.quiet, again = false, true
	}
	q.hold(p)
	if again {
		rs.nakAt = max(now, 1)
		q.answer(wire.NAKPSNSequenceError, rs.expected)
	}
}

// answer queues an ACKNOWLEDGE packet.
func (q *qp) answer(s wire.Syndrome, psn wire.PSN) {
	q.resp.queue.pushAck(s, psn, q.resp.msn)
	if s == wire.ACK && q.awaitsRequest() {
		q.ackLater()
	} else {
		q.d.markReady(q)
	}
}

// executed moves on past the packet p, and acknowledges it if asked to.
func (q *qp) executed(p *wire.Packet) {
	rs := &q.resp
	rs.expected = rs.expected.Next()
	if p.Opcode.Ends() {
		rs.msn = rs.msn.Add(1)
		rs.message = messageNone
	}
	if p.AckReq {
		q.answer(wire.ACK, p.PSN)
	}
}

// refuse answers a request that can't be executed; the connection ends (IBTA 9.9.3).
func (q *qp) refuse(s wire.Syndrome, psn wire.PSN) {
	event := verbs.EventQPAccess
	switch s {
	case wire.NAKInvalidRequest:
		q.d.counters.inc(RespRemoteInvalidRequest)
	case wire.NAKRemoteAccessError:
		q.d.counters.inc(RespRemoteAccessErrors)
	default:
		event = verbs.EventQPFatal
	}
	q.answer(s, psn)
	q.toError(verbs.WCSuccess, event)
}

// refuseRecv is refuse for a request that fails because of the receive in use, which ends with status.
func (q *qp) refuseRecv(s wire.Syndrome, psn wire.PSN, status verbs.WCStatus) {
	rs := &q.resp
	q.completeRecv(&verbs.WC{WRID: q.rq.at(rs.head).wrID, Status: status})
	rs.head++
	q.refuse(s, psn)
}

// notReady asks the peer to come again later: no receive is posted.
func (q *qp) notReady(p *wire.Packet, now time.Duration) {
	q.d.counters.inc(OutOfBuffer)
	q.dropHeld() // the peer repeats everything
	q.resp.quiet, q.resp.gapSeen, q.resp.gapTop, q.resp.nakAt = true, p.PSN, p.PSN, max(now, 1)
	q.answer(wire.RNRNAK(q.attr.MinRNRTimer), p.PSN)
}
