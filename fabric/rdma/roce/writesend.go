package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Data that fits one packet is often followed by a short message that says that it is there, as a response follows the
// data that was read. Between two devices of our kind the WRITE of the data takes the SEND behind it along in its
// packet (wire.WriteSend). That saves one packet of two, and avoids small packets between large ones, which break
// trains. Both stay requests of their own to the consumers.

// takeAlong makes w, the WRITE whose turn it is, take the request behind it along, if that is a SEND that it can take
// and is posted already. The SEND then has no packet, and is complete when w is.
func (q *qp) takeAlong(w *sendWQE) {
	next := q.req.cur + 1
	if !q.writeSend || w.packets != 1 || next == q.req.tail {
		return
	}
	if s := q.sq.at(next); q.goesAlong(s) {
		s.started = true
		w.along, w.behind = true, next
	}
}

// goesAlong reports whether s is short, and its data is one piece of memory that is there.
func (q *qp) goesAlong(s *sendWQE) bool {
	if s.op != verbs.WRSend && s.op != verbs.WRSendWithInv || s.flags&verbs.SendFence != 0 ||
		s.length == 0 || s.length > wire.LongSend {
		return false
	}
	return s.flags&verbs.SendInline != 0 || len(s.sges) == 1 && q.message(s) != nil
}

// message returns the data of a SEND that goes along; nil if its memory can't be had.
func (q *qp) message(s *sendWQE) []byte {
	if s.flags&verbs.SendInline != 0 {
		return s.inline
	}
	b, has, ok := q.d.local(q.pd, &s.sges[0], 0)
	if !ok || has&verbs.AccessOnDemand != 0 {
		return nil
	}
	return b
}

// makeWriteSend makes w's packet that of the SEND too.
func (q *qp) makeWriteSend(p *wire.Packet, w *sendWQE) {
	s := q.sq.at(w.behind)
	p.Opcode = wire.WriteSend
	if s.op == verbs.WRSendWithInv {
		p.Opcode = wire.WriteSendWithInv
	}
	p.IETH.RKey = s.rkey
	p.Solicited = s.flags&verbs.SendSolicited != 0
}

// onWriteSend takes a WRITE with the SEND behind it.
func (q *qp) onWriteSend(p *wire.Packet, now time.Duration) {
	rs := &q.resp
	if q.attr.Access&verbs.AccessRemoteWrite == 0 || rs.message != messageNone ||
		int64(p.RETH.Length) > int64(min(q.mtu, len(p.Payload))) || len(p.Payload)-int(p.RETH.Length) > wire.LongSend {
		q.refuse(wire.NAKInvalidRequest, p.PSN)
		return
	}
	if rs.head == rs.tail {
		q.notReady(p, now)
		return
	}
	data, message := p.Payload[:p.RETH.Length], p.Payload[p.RETH.Length:]
	if !q.beginWrite(p) || !q.placeWrite(p, data) {
		return
	}
	q.d.counters.inc(RxWriteRequests)
	if !q.placeSend(p, 0, message) {
		return
	}
	q.d.counters.inc(RxSendRequests)
	if q.deliver(p, verbs.WC{Opcode: verbs.WCRecv, ByteLen: uint32(len(message))}) {
		q.executed(p)
	}
}
