package cm

import (
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// onMAD handles a MAD that arrived.
func (m *Manager) onMAD(a *arrival) {
	tid, msg, err := mad.Parse(a.mad[:])
	if err != nil {
		m.counters.Malformed.Add(1)
		return
	}
	m.counters.Received.Of(msg.AttributeID()).Add(1)
	switch msg := msg.(type) {
	case *mad.REQ:
		m.onREQ(a.src, tid, msg)
	case *mad.REP:
		m.onREP(a.src, tid, msg)
	case *mad.RTU:
		m.onPair(a.src, msg.CommIDs, func(r *record, fx *effects) { r.onRTU(msg.PrivateData[:], fx) })
	case *mad.MRA:
		m.mu.Lock()
		m.onRecord(m.answered(a.src, tid, msg.CommIDs), func(r *record, fx *effects) { r.onMRA(time.Now(), msg, fx) })
	case *mad.REJ:
		m.counters.RejectsReceived.Of(msg.Reason).Add(1)
		m.mu.Lock()
		m.onRecord(m.rejected(a.src, tid, msg), func(r *record, fx *effects) { r.onREJ(time.Now(), msg, fx) })
	case *mad.DREQ:
		m.onDREQ(a.src, tid, msg)
	case *mad.DREP:
		m.onPair(a.src, msg.CommIDs, func(r *record, fx *effects) { r.onDREP(time.Now(), fx) })
	case *mad.SIDRREQ:
		m.answer(a.src, tid, &mad.SIDRREP{RequestID: msg.RequestID, Status: mad.SIDRUnsupported, ServiceID: msg.ServiceID})
	case *mad.LAP:
		m.onLAP(a.src, tid, msg)
	default: // APR and SIDR_REP: we never ask for them
		m.counters.Dropped.Add(1)
	}
}

// onPair steps the connection that both IDs name.
func (m *Manager) onPair(src netip.Addr, ids mad.CommIDs, step func(*record, *effects)) {
	m.mu.Lock()
	m.onRecord(m.table.findPair(src, ids), step)
}

// onRecord steps r, or counts the message as dropped if r is nil. Called with mu held, which it releases.
func (m *Manager) onRecord(r *record, step func(*record, *effects)) {
	if r == nil {
		m.mu.Unlock()
		m.counters.Dropped.Add(1)
		return
	}
	m.finish(r, m.apply(r, func(fx *effects) { step(r, fx) }))
}

// answer sends a message for which there is no connection. Called without mu.
func (m *Manager) answer(dst netip.Addr, tid uint64, msg mad.Message) {
	if !m.answers.take(dst, time.Now()) {
		m.counters.Unanswered.Add(1)
		return
	}
	p := m.encode(dst, outgoing{tid: tid, msg: msg})
	_ = m.sendPacket(&p) // counted there; the peer asks again
}

// onREP handles the reply to a REQ. A reply that names the QP of a live connection means that the peer has restarted
// (IBTA 12.9.8.3.1).
func (m *Manager) onREP(src netip.Addr, tid uint64, rep *mad.REP) {
	qpn := peerKey{src, rep.LocalCAGUID, rep.LocalQPN}
	of, old := m.elsewhere(qpn)
	m.mu.Lock()
	r := m.table.find(src, rep.CommIDs)
	if r == nil {
		m.mu.Unlock()
		// Without this the peer would hold its half until its retries end.
		m.answer(src, tid, &mad.REJ{CommIDs: rep.Reversed(), Message: mad.AnswersREP, Reason: rejectInvalidCommID})
		return
	}
	fresh := r.state.awaitsREP()
	if fresh && r.tid != tid {
		m.onRecord(nil, nil)
		return
	}
	if own := m.table.byQPN[qpn]; own != nil {
		of, old = m, own
	}
	out := m.apply(r, func(fx *effects) {
		r.onREP(rep, fx)
		if fresh && old != nil {
			r.stale(fx)
		}
	})
	if fresh && old == nil {
		m.table.learn(r)
	}
	m.finish(r, out)
	if fresh && old != nil {
		of.evict(old)
	}
}

// evict ends a connection whose peer uses its QP for another one.
func (m *Manager) evict(old *record) {
	m.mu.Lock()
	if old.state == stateEstablished {
		m.counters.StaleEvicted.Add(1)
	}
	m.finish(old, m.apply(old, func(fx *effects) {
		if old.state != stateDREQRcvd {
			old.disconnect(time.Now(), fx)
		}
	}))
}

// answered finds the connection that an MRA or a REJ concerns. Once the peer has sent its ID the message must name
// both: ours alone could be guessed in hours, and a REJ ends the connection. Before that, the transaction ID of the REQ
// takes its place.
func (m *Manager) answered(src netip.Addr, tid uint64, ids mad.CommIDs) *record {
	r := m.table.find(src, ids)
	if r == nil || r.state.awaitsREP() && r.tid != tid || !r.state.awaitsREP() && r.ids.Remote != ids.Local {
		return nil
	}
	return r
}

// rejected finds the connection that a REJ concerns. A peer that gives up its REQ doesn't know our ID: it names the
// connection by its GUID and its own ID.
func (m *Manager) rejected(src netip.Addr, tid uint64, rej *mad.REJ) *record {
	if r := m.answered(src, tid, rej.CommIDs); r != nil {
		return r
	}
	r := m.table.byID[peerKey{src, rej.GUID(), rej.Local}]
	if rej.Reason != verbs.RejectTimeout || r == nil || !r.state.halfOpen() {
		return nil
	}
	return r
}

// onLAP refuses an alternate path, which RoCE doesn't have, so that the peer need not wait for its timeouts.
func (m *Manager) onLAP(src netip.Addr, tid uint64, lap *mad.LAP) {
	m.mu.Lock()
	r := m.table.findPair(src, lap.CommIDs)
	stands := r != nil && r.state == stateEstablished
	m.mu.Unlock()
	if r != nil && !stands {
		m.counters.Dropped.Add(1)
		return
	}
	apr := &mad.APR{CommIDs: lap.Reversed(), Status: mad.APRInvalidCommID}
	if stands {
		apr.Status = mad.APRUnsupported
	}
	m.answer(src, tid, apr)
}

// onDREQ handles a DREQ. One for an unknown connection is answered too: otherwise the peer would repeat it.
func (m *Manager) onDREQ(src netip.Addr, tid uint64, dreq *mad.DREQ) {
	m.mu.Lock()
	r := m.table.findPair(src, dreq.CommIDs)
	if r == nil {
		m.mu.Unlock()
		m.answer(src, tid, &mad.DREP{CommIDs: dreq.Reversed()})
		return
	}
	m.onRecord(r, func(r *record, fx *effects) { r.onDREQ(time.Now(), tid, dreq, fx) })
}

// onCommEst handles the first packet that arrived on the QP of id.
func (m *Manager) onCommEst(id *cmID) {
	m.mu.Lock()
	m.onRecord(id.rec, func(r *record, fx *effects) { r.commEst(fx) })
}
