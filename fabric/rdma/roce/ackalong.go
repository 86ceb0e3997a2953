package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// If each message is answered by one, as a command by a response, and that by the next command, then there is usually a
// request to send whenever there is something to acknowledge. Between two devices of our kind the request carries the
// acknowledgement, which saves one packet of two if each connection has one message outstanding. Nothing waits for a
// request: if there is none to send after the handlers have been called, an ACKNOWLEDGE is sent.

// takeAck makes the request in p, which is about to be sent, carry an acknowledgement of what q has executed. All
// requests that can carry one do, even if it isn't new: as they are then of one size, trains are longer.
func (q *qp) takeAck(p *wire.Packet) {
	if !q.ackAlong {
		return
	}
	if op := p.Opcode.WithAck(); op != p.Opcode {
		p.Opcode, p.AckPSN = op, wire.AckPSN(q.resp.acknowledge())
	}
}

// acknowledge returns the last PSN that may be acknowledged outside the queue of answers: no later than the answers
// that wait there, which an ACK must not overtake. If only an ACK waits there, it has become unnecessary and is
// removed.
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

// awaitsRequest reports whether a request may soon carry q's ACK: the handler that gets the completion of the
// acknowledged message, and may post one, is about to be called or is running.
func (q *qp) awaitsRequest() bool { return q.ackAlong && (q.recvCQ.fired || q.recvCQ.called) }

// ackLater makes q's ACK wait for such a request.
func (q *qp) ackLater() {
	if !q.isAcking {
		q.isAcking = true
		q.d.acking = append(q.d.acking, q)
	}
}

// acksDue marks the queue pairs ready whose ACK waits for no handler any more, and was not carried by a request.
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

// onAckAlong handles the acknowledgement that a request carries.
func (q *qp) onAckAlong(psn wire.PSN, now time.Duration) {
	if q.attr.State == verbs.RTS && q.req.outstanding(psn) {
		q.heard(now)
		q.executedBefore(psn.Next(), now)
	}
}
