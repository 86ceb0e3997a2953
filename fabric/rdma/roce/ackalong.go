package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Where each message is answered by one, as a command is by a response, and that by the next
// command, there is a request to leave whenever there is something to acknowledge. Between two devices
// of our kind it takes the acknowledgement along, which saves a packet of two where each connection
// has one message outstanding. Nothing waits for it: who has no request to send when the handlers have
// been called sends an ACKNOWLEDGE.

// takeAck has the request in p, which is about to leave, take along what q has executed. All that can
// do so, also where that isn't new: as they are of one size, trains are longer.
func (q *qp) takeAck(p *wire.Packet) {
	if !q.ackAlong {
		return
	}
	if op := p.Opcode.WithAck(); op != p.Opcode {
		p.Opcode, p.AckPSN = op, wire.AckPSN(q.resp.acknowledge())
	}
}

// acknowledge is the last PSN that may be acknowledged by other means than the queue of answers: not beyond
// what waits there, which an ACK must not overtake. An ACK that alone waits there has become needless.
func (rs *responder) acknowledge() wire.PSN {
	u := &rs.queue
	if u.onlyAck() {
		u.pop()
	}
	if u.empty() {
		return rs.expected.Add(-1)
	}
	return u.front().psn.Add(-1)
}

// awaitsRequest reports whether q's ACK may soon go along with a request: that of who handles the
// completion of what it is for, and hasn't been called yet, or is at it.
func (q *qp) awaitsRequest() bool { return q.ackAlong && (q.recvCQ.fired || q.recvCQ.called) }

// ackLater has q's ACK wait for such a request.
func (q *qp) ackLater() {
	if !q.isAcking {
		q.isAcking = true
		q.d.acking = append(q.d.acking, q)
	}
}

// acksDue makes those ready whose ACK waits for a handler no more, and hasn't gone along.
func (d *Device) acksDue() {
	left := d.acking[:0]
	for _, q := range d.acking {
		if q.awaitsRequest() {
			left = append(left, q)
			continue
		}
		q.isAcking = false
		if !q.resp.queue.empty() {
			d.markReady(q)
		}
	}
	clear(d.acking[len(left):])
	d.acking = left
}

// onAckAlong takes the acknowledgement that a request has taken along.
func (q *qp) onAckAlong(psn wire.PSN, now time.Duration) {
	if q.attr.State == verbs.RTS && q.req.outstanding(psn) {
		q.heard(now)
		q.executedBefore(psn.Next(), now)
	}
}
