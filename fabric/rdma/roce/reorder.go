package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// reorder holds request packets that arrived ahead of a lost one, until that one is here. Then they are executed, in
// order, so that a peer can't tell that they were held: with a peer that repeats everything from the lost packet on, a
// second loss behind it costs no second round of repetition.
type reorder struct {
	slots [reorderSlots]*heldPacket // by PSN
	base  wire.PSN                  // no slot before it is in use
	last  wire.PSN                  // nor is one behind it
	n     int
	bytes int
}

// heldPacket is a copy of a packet.
type heldPacket struct {
	packet  wire.Packet
	payload []byte // its memory
}

const (
	// reorderSlots is how many PSNs ahead of the expected one a packet may be held.
	reorderSlots = scoreSize
	// maxHeld bounds the memory, in bytes, of the payloads that a device holds, and so their number. One queue pair
	// gets at most half of it, see mayHold.
	maxHeld = 8 << 20
	// ordinaryPayload is the least memory that the payload of a held packet has. That of a longer one isn't kept for
	// the next.
	ordinaryPayload = wire.MaxPathMTU + wire.LongSend
)

func (o *reorder) at(psn wire.PSN) **heldPacket { return &o.slots[psn%reorderSlots] }

// hold keeps a copy of p, which is ahead of the expected packet, if it can.
func (q *qp) hold(p *wire.Packet) {
	d, rs := q.d, &q.resp
	switch p.Opcode.Kind() {
	case wire.KindSend, wire.KindWrite, wire.KindWriteSend:
	case wire.KindReadRequest, wire.KindAtomic:
		// A peer that isn't of our kind repeats these, and then asks for their answers. Linux's rxe would see answers
		// to requests that it hasn't repeated yet, and break the connection (see dropFrom).
		if !q.selective {
			return
		}
	default:
		return
	}
	if p.PSN.Diff(rs.expected) >= reorderSlots || !q.mayHold(heldBytes(p.Payload)) {
		return
	}
	if rs.held == nil {
		rs.held = d.reorders.take()
		rs.held.base, rs.held.last = rs.expected, p.PSN
	}
	slot := rs.held.at(p.PSN)
	if *slot != nil {
		return // it came again
	}
	h := d.heldPackets.take()
	h.packet = *p
	if cap(h.payload) < len(p.Payload) {
		h.payload = make([]byte, 0, heldBytes(p.Payload))
	}
	h.payload = append(h.payload[:0], p.Payload...)
	h.packet.Payload = h.payload
	*slot = h
	rs.held.n++
	if p.PSN.After(rs.held.last) {
		rs.held.last = p.PSN
	}
	q.countHeld(rs.held, heldBytes(p.Payload))
}

// mayHold reports whether q may hold n bytes more: it may hold no more than it leaves to the others, and all queue
// pairs of its peer no more than twice that. What is held for a peer that dies with gaps open stays until the peer is
// given up.
func (q *qp) mayHold(n int) bool {
	left := maxHeld - q.d.held
	own := 0
	if q.resp.held != nil {
		own = q.resp.held.bytes
	}
	return own+n <= left && q.path.held+n <= 2*left
}

// heldBytes is the memory of a held payload.
func heldBytes(payload []byte) int { return max(len(payload), ordinaryPayload) }

// countHeld adds n bytes, which may be negative, to what o holds for q.
func (q *qp) countHeld(o *reorder, n int) {
	o.bytes += n
	q.path.held += n
	q.d.held += n
}

// catchUp executes what was held behind the packet that has just been executed. If there is another gap, a peer of our
// kind is told at once.
func (q *qp) catchUp(now time.Duration) {
	rs := &q.resp
	for rs.held != nil {
		q.skipTo(rs.held, rs.expected)
		slot := rs.held.at(rs.expected)
		if *slot == nil {
			break
		}
		h := *slot
		*slot = nil
		rs.held.n--
		q.countHeld(rs.held, -heldBytes(h.payload))
		q.execute(&h.packet, now)
		q.d.letGoHeld(h)
	}
	switch {
	case rs.held == nil:
	case rs.held.n == 0:
		q.dropHeld()
	case q.selective:
		q.answer(wire.NAKPSNSequenceError, rs.expected)
	}
}

// maxArrived is the longest payload of a SelectiveAck, which has to be short enough to be copied. What is further ahead
// is reported only when it is nearer.
const maxArrived = copyBelow - 8

// listArrived turns the packet in t, a NAK for psn, into a SelectiveAck of what is held behind psn.
func (q *qp) listArrived(t *txBatch, psn wire.PSN) {
	rs := &q.resp
	clear(t.arrived[:])
	list, last := wire.Arrived(t.arrived[:]), -1
	for i := range min(list.Len(), rs.held.last.Diff(psn)+1) {
		// What was executed since the answer was queued has arrived as well.
		if at := psn.Add(i); at.Before(rs.expected) || *rs.held.at(at) != nil {
			list.Set(i)
			last = i
		}
	}
	if last >= 0 {
		t.packet.Opcode = wire.SelectiveAck
		t.gathered = append(t.gathered, list[:last/8+1])
	}
}

// skipTo drops what is held before psn: a READ may have advanced past it.
func (q *qp) skipTo(o *reorder, psn wire.PSN) {
	for ; o.base.Before(psn) && o.n > 0; o.base = o.base.Next() {
		if slot := o.at(o.base); *slot != nil {
			q.countHeld(o, -heldBytes((*slot).payload))
			q.d.letGoHeld(*slot)
			*slot = nil
			o.n--
		}
	}
	o.base = psn
}

// dropHeld drops everything that is held.
func (q *qp) dropHeld() {
	o := q.resp.held
	if o == nil {
		return
	}
	q.skipTo(o, o.base.Add(reorderSlots))
	q.resp.held = nil
	q.d.reorders.give(o)
}

func (d *Device) letGoHeld(h *heldPacket) {
	if cap(h.payload) > ordinaryPayload {
		h.payload = nil
	}
	d.heldPackets.give(h)
}

// pool keeps used objects for the next use. The device's lock guards it.
type pool[T any] struct{ free []*T }

func (p *pool[T]) take() *T {
	n := len(p.free)
	if n == 0 {
		return new(T)
	}
	x := p.free[n-1]
	p.free = p.free[:n-1]
	return x
}

func (p *pool[T]) give(x *T) { p.free = append(p.free, x) }
