package roce

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// execute takes the packet that is expected next.
func (q *qp) execute(p *wire.Packet, now time.Duration) {
	rs := &q.resp
	rs.nakAt, rs.quiet = 0, false
	q.meet()
	switch p.Opcode.Kind() {
	case wire.KindSend:
		q.onSend(p, now)
	case wire.KindWrite:
		q.onWrite(p, now)
	case wire.KindWriteSend:
		q.onWriteSend(p, now)
	case wire.KindReadRequest:
		q.onRead(p)
	case wire.KindAtomic:
		q.onAtomic(p)
	default:
		q.refuse(wire.NAKInvalidRequest, p.PSN)
	}
}

// inOrder checks the place of p in its message, and its size for that place.
func (q *qp) inOrder(p *wire.Packet, kind messageKind) bool {
	starts, ends := p.Opcode.Starts(), p.Opcode.Ends()
	even := kind == messageSend && q.selective // packets have the size of the first, whatever that is
	most := q.mtu
	switch {
	case even && !starts:
		most = q.resp.sendCut
	case kind == messageSend:
		most = q.sendMTU
	}
	least := most
	switch {
	case starts && ends:
		least = 0
	case ends, even && starts:
		least = 1
	}
	want := kind
	if starts {
		want = messageNone
	}
	n := len(p.Payload)
	return q.resp.message == want && least <= n && n <= most
}

func (q *qp) onSend(p *wire.Packet, now time.Duration) {
	rs := &q.resp
	if !q.inOrder(p, messageSend) {
		q.refuse(wire.NAKInvalidRequest, p.PSN)
		return
	}
	if rs.head == rs.tail {
		q.notReady(p, now)
		return
	}
	if p.Opcode.Starts() {
		rs.message, rs.recvOff, rs.sendCut = messageSend, 0, len(p.Payload)
	}
	if !q.placeSend(p, rs.recvOff, p.Payload) {
		return
	}
	rs.recvOff += len(p.Payload)
	if p.Opcode.Ends() {
		q.d.counters.inc(RxSendRequests)
		if !q.deliver(p, verbs.WC{Opcode: verbs.WCRecv, ByteLen: uint32(rs.recvOff)}) {
			return
		}
	}
	q.executed(p)
}

// placeSend puts b, which came with p, at offset off of the oldest receive. It returns false if that ended the
// connection.
func (q *qp) placeSend(p *wire.Packet, off int, b []byte) bool {
	w := q.rq.at(q.resp.head)
	if off+len(b) > w.length {
		q.d.counters.inc(RespLocalLengthError)
		q.refuseRecv(wire.NAKInvalidRequest, p.PSN, verbs.WCLocLenErr)
		return false
	}
	if !q.d.scatter(q.pd, w.sges, off, b) {
		q.d.counters.inc(RespLocalProtError)
		q.refuseRecv(wire.NAKRemoteOperationalErr, p.PSN, verbs.WCLocProtErr)
		return false
	}
	return true
}

// deliver completes the oldest receive. If p carries a key to invalidate, that is done first. It returns false if the
// connection ended: then p isn't acknowledged, as nobody learns of it.
func (q *qp) deliver(p *wire.Packet, wc verbs.WC) bool {
	rs := &q.resp
	headers := p.Opcode.Headers()
	if headers&wire.HasIETH != 0 {
		if !q.d.invalidate(q, p.IETH.RKey) {
			q.refuse(wire.NAKRemoteAccessError, p.PSN)
			return false
		}
		wc.Flags, wc.InvalidatedRKey = verbs.WCWithInv, p.IETH.RKey
	}
	if headers&wire.HasImmDt != 0 {
		wc.Flags, wc.ImmData = verbs.WCWithImm, uint32(p.ImmDt)
	}
	wc.WRID = q.rq.at(rs.head).wrID
	rs.head++
	q.completeRecv(&wc)
	if q.fault { // the completion queue is full
		q.toError(q.faultWC, q.faultEvt)
		return false
	}
	return true
}

func (q *qp) onWrite(p *wire.Packet, now time.Duration) {
	rs := &q.resp
	if q.attr.Access&verbs.AccessRemoteWrite == 0 || !q.inOrder(p, messageWrite) {
		q.refuse(wire.NAKInvalidRequest, p.PSN)
		return
	}
	withImm := p.Opcode.Headers()&wire.HasImmDt != 0
	if withImm && rs.head == rs.tail {
		q.notReady(p, now)
		return
	}
	if p.Opcode.Starts() && !q.beginWrite(p) {
		return
	}
	t := &rs.write
	n := len(p.Payload)
	if n > t.left || p.Opcode.Ends() != (n == t.left) {
		q.refuse(wire.NAKInvalidRequest, p.PSN)
		return
	}
	if !q.placeWrite(p, p.Payload) {
		return
	}
	if p.Opcode.Ends() {
		if !q.selective || p.Opcode != wire.RCWriteOnly || !p.Solicited { // see makeData
			q.d.counters.inc(RxWriteRequests)
		}
		total := p.PSN.Diff(t.first)*q.mtu + n
		if withImm && !q.deliver(p, verbs.WC{Opcode: verbs.WCRecvRDMAWithImm, ByteLen: uint32(total)}) {
			return
		}
	}
	q.executed(p)
}

// placeWrite puts b, which came with p, at the place that the WRITE has reached. It returns false if that ended the
// connection.
func (q *qp) placeWrite(p *wire.Packet, b []byte) bool {
	t, n := &q.resp.write, len(b)
	if n == 0 {
		return true
	}
	to, ok := t.r.slice(t.va, n)
	if !ok || t.r.key != t.key { // invalidated since the message began
		q.refuse(wire.NAKRemoteAccessError, p.PSN)
		return false
	}
	copy(to, b)
	q.d.rx.placed += n
	t.va += uint64(n)
	t.left -= n
	return true
}

// beginWrite checks the RETH. Nothing is checked for a message without data (IBTA 9.7.4.1.5).
func (q *qp) beginWrite(p *wire.Packet) bool {
	rs := &q.resp
	h := &p.RETH
	if h.Length > wire.MaxMessage {
		q.refuse(wire.NAKInvalidRequest, p.PSN)
		return false
	}
	t := writeTarget{key: h.RKey, va: h.VA, left: int(h.Length), first: p.PSN}
	if t.left > 0 {
		if t.r = q.remoteRange(h, verbs.AccessRemoteWrite); t.r == nil {
			q.refuse(wire.NAKRemoteAccessError, p.PSN)
			return false
		}
	}
	rs.message, rs.write = messageWrite, t
	return true
}

// remoteRange returns the region of a RETH, or nil if not all of the range lies inside.
func (q *qp) remoteRange(h *wire.RETH, access verbs.Access) *region {
	r := q.d.remote(q, h.RKey, access)
	if r == nil {
		return nil
	}
	if _, ok := r.slice(h.VA, int(h.Length)); !ok {
		return nil
	}
	return r
}

func (q *qp) onRead(p *wire.Packet) {
	rs := &q.resp
	h := &p.RETH
	if q.attr.Access&verbs.AccessRemoteRead == 0 || rs.message != messageNone || len(p.Payload) > 0 ||
		h.Length > wire.MaxMessage || rs.queue.full() || rs.records.none() {
		q.refuse(wire.NAKInvalidRequest, p.PSN)
		return
	}
	var r *region
	if h.Length > 0 {
		if r = q.remoteRange(h, verbs.AccessRemoteRead); r == nil {
			q.refuse(wire.NAKRemoteAccessError, p.PSN)
			return
		}
	}
	q.d.counters.inc(RxReadRequests)
	n := max(1, (int(h.Length)+q.mtu-1)/q.mtu)
	rs.expected = rs.expected.Add(n)
	rs.msn = rs.msn.Add(1)
	rs.records.push(record{kind: responseRead, first: p.PSN, end: rs.expected, va: h.VA, key: h.RKey, length: int(h.Length)})
	rs.queue.pushRead(p.PSN, rs.expected, r, h)
	q.d.markReady(q)
}

func (q *qp) onAtomic(p *wire.Packet) {
	rs := &q.resp
	h := &p.AtomicETH
	if q.attr.Access&verbs.AccessRemoteAtomic == 0 || rs.message != messageNone || len(p.Payload) > 0 ||
		h.VA%8 != 0 || rs.queue.full() || rs.records.none() {
		q.refuse(wire.NAKInvalidRequest, p.PSN)
		return
	}
	r := q.d.remote(q, h.RKey, verbs.AccessRemoteAtomic)
	var b []byte
	if r != nil {
		b, _ = r.slice(h.VA, 8)
	}
	if b == nil {
		q.refuse(wire.NAKRemoteAccessError, p.PSN)
		return
	}
	q.d.counters.inc(RxAtomicRequests)
	old := executeAtomic((*uint64)(unsafe.Pointer(&b[0])), p.Opcode, h)
	rs.expected = rs.expected.Next()
	rs.msn = rs.msn.Add(1)
	rs.records.push(record{kind: responseAtomic, first: p.PSN, end: rs.expected, value: old})
	rs.queue.pushAtomic(p.PSN, old)
	q.d.markReady(q)
}

// executeAtomic is atomic with respect to this machine's processors too. Addresses keep their offset in the page
// (addressFor), so an aligned one is aligned in memory.
func executeAtomic(word *uint64, op wire.Opcode, h *wire.AtomicETH) uint64 {
	if op == wire.RCFetchAdd {
		return atomic.AddUint64(word, h.SwapAdd) - h.SwapAdd
	}
	for {
		old := atomic.LoadUint64(word)
		if old != h.CompareDt || atomic.CompareAndSwapUint64(word, old, h.SwapAdd) {
			return old
		}
	}
}
