package roce

import (
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
)

// PostSend queues send work requests. Unless the device is about to send anyway, they are sent from the caller's
// goroutine before PostSend returns.
func (q *qp) PostSend(wrs []verbs.SendWR) (n int, err error) {
	d := q.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for n = range wrs {
		if err = q.queueSend(&wrs[n]); err != nil {
			break
		}
	}
	if err == nil {
		n = len(wrs)
	}
	if n > 0 {
		d.markReady(q)
		d.posted()
	}
	return n, err
}

// PostRecv queues receive buffers.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (n int, err error) {
	d := q.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for n = range wrs {
		if err = q.queueRecv(&wrs[n]); err != nil {
			break
		}
	}
	if err == nil {
		n = len(wrs)
	}
	if n > 0 && q.attr.State == verbs.Err {
		d.postedOutside()
	}
	return n, err
}

func (q *qp) queueSend(wr *verbs.SendWR) error {
	const op = "post send"
	if q.freed {
		return q.failOp(op, verbs.ErrClosed)
	}
	if s := q.attr.State; s != verbs.RTS && s != verbs.Err {
		return q.failf(op, verbs.ErrState, "state is %s, want RTS", s)
	}
	r := &q.req
	if r.tail-r.head >= q.sq.limit {
		return q.failf(op, verbs.ErrNoMemory, "%d work requests are queued", q.sq.limit)
	}
	if int(r.tail-r.head) == len(q.sq.slots) {
		q.sq.grow(r.head)
	}
	w := q.sq.at(r.tail)
	if err := q.fill(w, wr); err != nil {
		return err
	}
	if q.attr.State == verbs.Err {
		q.completeSend(w, verbs.WCWRFlushErr)
		return nil
	}
	r.tail++
	return nil
}

// fill copies a work request into its slot.
func (q *qp) fill(w *sendWQE, wr *verbs.SendWR) error {
	const op = "post send"
	if wr.Opcode < verbs.WRSend || wr.Opcode > verbs.WRLocalInv {
		return q.failf(op, verbs.ErrInvalid, "opcode %d", wr.Opcode)
	}
	if len(wr.SGList) > q.init.MaxSendSGE && wr.Flags&verbs.SendInline == 0 {
		return q.failf(op, verbs.ErrInvalid, "%d scatter/gather entries: want at most %d", len(wr.SGList), q.init.MaxSendSGE)
	}
	w.wrID, w.op, w.flags = wr.WRID, wr.Opcode, wr.Flags
	w.started, w.along, w.packets, w.length = false, false, 0, 0
	w.sges = w.sges[:0]
	switch wr.Opcode {
	case verbs.WRBindMW:
		return q.fillBind(w, wr)
	case verbs.WRLocalInv:
		w.rkey = wr.InvalidateRKey
		return nil
	case verbs.WRSendWithInv:
		w.rkey = wr.InvalidateRKey
	case verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		if q.attr.State == verbs.RTS && q.attr.MaxRdAtomic == 0 {
			return q.failf(op, verbs.ErrInvalid, "READ or atomic where MaxRdAtomic is 0")
		}
		fallthrough
	default:
		w.remoteAddr, w.rkey = wr.RemoteAddr, wr.RKey
	}
	if w.isAtomic() {
		w.compareAdd, w.swap = wr.CompareAdd, wr.Swap
	} else if wr.Opcode == verbs.WRSendWithImm || wr.Opcode == verbs.WRRDMAWriteWithImm {
		w.imm = wr.ImmData
	}
	n := totalLength(wr.SGList)
	switch {
	case n > wire.MaxMessage:
		return q.failf(op, verbs.ErrInvalid, "message of %d bytes: want at most 2 GiB", n)
	case w.isAtomic() && (n != 8 || len(wr.SGList) != 1):
		return q.failf(op, verbs.ErrInvalid, "atomic with %d bytes in %d entries: want 8 in 1", n, len(wr.SGList))
	}
	w.length = n
	if wr.Flags&verbs.SendInline != 0 {
		return q.fillInline(w, wr)
	}
	w.sges = append(w.sges, wr.SGList...)
	return nil
}

func (q *qp) fillBind(w *sendWQE, wr *verbs.SendWR) error {
	m, ok := wr.MW.(*mw)
	if !ok || m.d != q.d {
		return q.failf("post send", verbs.ErrInvalid, "memory window is not of this device")
	}
	w.mw, w.bind, w.rkey = m, wr.Bind, m.nextKey()
	return nil
}

// fillInline copies the data. The registration of the memory doesn't matter, but only
// registered memory has an address here.
func (q *qp) fillInline(w *sendWQE, wr *verbs.SendWR) error {
	const op = "post send"
	if !w.isSend() && w.op != verbs.WRRDMAWrite && w.op != verbs.WRRDMAWriteWithImm {
		return q.failf(op, verbs.ErrInvalid, "inline data with opcode %d", w.op)
	}
	if w.length > maxInline {
		return q.failf(op, verbs.ErrInvalid, "%d bytes of inline data: want at most %d", w.length, maxInline)
	}
	if !q.sq.inline {
		q.sq.inline = true
		q.sq.equipInline(0, len(q.sq.slots))
	}
	w.inline = w.inline[:0]
	for i := range wr.SGList {
		e := &wr.SGList[i]
		if e.Length == 0 { // its key doesn't matter, as in gather
			continue
		}
		b, has, ok := q.d.local(q.pd, e, 0)
		if !ok {
			return q.failf(op, verbs.ErrInvalid, "inline data: L_Key %#x does not cover %d bytes at %#x", e.LKey, e.Length, e.Addr)
		}
		if has&verbs.AccessOnDemand != 0 {
			var there [maxInline]byte
			if _, ok := mem.Copy(there[:], b); !ok {
				return q.failf(op, verbs.ErrInvalid, "inline data: %v", mem.ErrFault)
			}
			b = there[:len(b)]
		}
		w.inline = append(w.inline, b...)
	}
	return nil
}

func (q *qp) queueRecv(wr *verbs.RecvWR) error {
	const op = "post receive"
	if q.freed {
		return q.failOp(op, verbs.ErrClosed)
	}
	if q.attr.State == verbs.Reset {
		return q.failf(op, verbs.ErrState, "state is RESET, want INIT or later")
	}
	rs := &q.resp
	n := totalLength(wr.SGList)
	switch {
	case rs.tail-rs.head >= q.rq.limit:
		return q.failf(op, verbs.ErrNoMemory, "%d receives are queued", q.rq.limit)
	case len(wr.SGList) > q.init.MaxRecvSGE:
		return q.failf(op, verbs.ErrInvalid, "%d scatter/gather entries: want at most %d", len(wr.SGList), q.init.MaxRecvSGE)
	case n > wire.MaxMessage:
		return q.failf(op, verbs.ErrInvalid, "buffer of %d bytes: want at most 2 GiB", n)
	}
	if q.attr.State == verbs.Err {
		q.completeRecv(&verbs.WC{WRID: wr.WRID, Status: verbs.WCWRFlushErr})
		return nil
	}
	if int(rs.tail-rs.head) == len(q.rq.slots) {
		q.rq.grow(rs.head)
	}
	w := q.rq.at(rs.tail)
	w.wrID, w.length = wr.WRID, n
	w.sges = append(w.sges[:0], wr.SGList...)
	rs.tail++
	return nil
}
