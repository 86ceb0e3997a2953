package roce

import (
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// onDuplicate handles a request that was executed before: its answer was lost, or is late.
func (q *qp) onDuplicate(p *wire.Packet) {
	rs := &q.resp
	q.d.counters.inc(DuplicateRequest)
	switch p.Opcode.Kind() {
	case wire.KindSend, wire.KindWrite, wire.KindWriteSend:
		// Not beyond a READ whose answer the peer may still lack: it would conclude that the answer was lost again.
		if q.selective {
			q.answer(wire.ACK, rs.expected.Add(-1)) // the peer asks for the answers that it lacks
		} else {
			q.answer(wire.ACK, rs.records.firstAfter(p.PSN, rs.expected).Add(-1))
		}
	case wire.KindReadRequest:
		if rec := rs.records.find(p.PSN, responseRead); rec != nil && !q.repeatsTooMuch() {
			q.repeatRead(rec, p)
		}
	case wire.KindAtomic:
		if rec := rs.records.find(p.PSN, responseAtomic); rec != nil && !q.repeatsTooMuch() {
			q.dropFrom(p.PSN)
			rs.queue.pushAtomic(p.PSN, rec.value)
			q.d.markReady(q)
		}
	}
}

// repeatsTooMuch reports whether so many answers are waiting that another repeated one might take the place of one that
// the peer may still ask for the first time.
func (q *qp) repeatsTooMuch() bool {
	return q.resp.queue.fullOf(len(q.resp.records.ring))
}

// repeatRead answers a READ again, completely or from some packet on. A repetition whose key has become invalid is
// late: the peer had the data before it let the key be invalidated. So it is dropped, here and when it is sent, and is
// no violation.
func (q *qp) repeatRead(rec *record, p *wire.Packet) {
	rs := &q.resp
	h := &p.RETH
	skip := p.PSN.Diff(rec.first) * q.mtu
	if h.RKey != rec.key || h.VA != rec.va+uint64(skip) || int(h.Length) > rec.length-skip {
		return
	}
	var r *region
	if h.Length > 0 {
		if r = q.remoteRange(h, verbs.AccessRemoteRead); r == nil {
			return
		}
	}
	q.dropFrom(p.PSN)
	rs.queue.pushRead(p.PSN, p.PSN.Add(max(1, (int(h.Length)+q.mtu-1)/q.mtu)), r, h)
	rs.queue.back().repeated = true
	q.d.markReady(q)
}

// dropFrom withdraws the answers from psn on that have not been sent, because the peer asks for everything from there
// on again. A peer of our kind asks only for what it lacks.
func (q *qp) dropFrom(psn wire.PSN) {
	rs := &q.resp
	if !q.selective && rs.queue.dropFrom(psn) {
		rs.nakAt, rs.quiet = 0, false
	}
}

// record describes an executed READ or atomic, so that it can be answered again (IBTA 9.7.5.1.4).
type record struct {
	kind       responseKind
	first, end wire.PSN
	va         uint64
	key        uint32
	length     int
	value      uint64 // of an atomic
}

// recordRing keeps as many records as the peer may have requests outstanding.
type recordRing struct {
	ring []record
	next int
	n    int
}

func (r *recordRing) init(limit int) { r.ring, r.next, r.n = make([]record, limit), 0, 0 }

func (r *recordRing) none() bool { return len(r.ring) == 0 }

func (r *recordRing) push(rec record) {
	r.ring[r.next] = rec
	r.next = (r.next + 1) % len(r.ring)
	r.n = min(r.n+1, len(r.ring))
}

// find returns the newest record of the request that psn belongs to: those of the last round of PSNs may still be
// there. An atomic has one PSN.
func (r *recordRing) find(psn wire.PSN, kind responseKind) *record {
	for i := range r.n {
		rec := &r.ring[(r.next-1-i+len(r.ring))%len(r.ring)]
		if rec.kind == kind && !psn.Before(rec.first) && psn.Before(rec.end) {
			return rec
		}
	}
	return nil
}

// firstAfter returns the PSN at which the first recorded request after psn begins, or expected.
func (r *recordRing) firstAfter(psn, expected wire.PSN) wire.PSN {
	for i := range r.n {
		if f := r.ring[i].first; f.After(psn) && f.Before(expected) {
			expected = f
		}
	}
	return expected
}
