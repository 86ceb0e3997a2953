package cm

import (
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Reject reasons that only this package sends (IBTA table 109).
const (
	rejectInvalidCommID    verbs.RejectReason = 6
	rejectInvalidTransport verbs.RejectReason = 9
)

// onREQ handles a connection request: a duplicate, a stale one, one to refuse, or a new one.
func (m *Manager) onREQ(src netip.Addr, tid uint64, req *mad.REQ) {
	qpn := peerKey{src, req.LocalCAGUID, req.LocalQPN}
	of, old := m.elsewhere(qpn)
	m.mu.Lock()
	if r := m.table.byID[peerKey{src, req.LocalCAGUID, req.LocalCommID}]; r != nil {
		if r.tid == tid && r.req == *req {
			m.onRecord(r, func(r *record, fx *effects) { r.onDuplicateREQ(time.Now(), fx) })
			return
		}
		m.refuseStale(src, tid, req, m, r)
		return
	}
	if r := m.table.byQPN[qpn]; r != nil {
		of, old = m, r
	}
	if old != nil {
		m.refuseStale(src, tid, req, of, old)
		return
	}
	rej := refusal(req.LocalCommID, 0)
	listener, h := m.check(src, req, rej)
	if rej.Reason != 0 {
		m.mu.Unlock()
		m.answer(src, tid, rej)
		return
	}
	if !m.requestsOf(src).take(src, time.Now()) {
		m.mu.Unlock()
		m.counters.Unanswered.Add(1)
		return
	}
	if req.PathMTU > m.pathMTU(src) { // after the rate limit on requests, since it asks the kernel
		m.mu.Unlock()
		rej.Reason = verbs.RejectInvalidMTU // a REP can't lower it
		m.answer(src, tid, rej)
		return
	}
	out, ok := m.makeRoom(src)
	if !ok {
		m.mu.Unlock()
		rej.Reason = verbs.RejectNoResources
		m.answer(src, tid, rej)
		return
	}
	r := m.request(listener, netip.AddrPortFrom(src, h.SourcePort))
	r.onREQ(time.Now(), tid, req)
	r.qpACK = m.peerACKTimeout(req)
	m.enter(r)
	m.finish(r, append(out, m.apply(r, func(fx *effects) { fx.event(requestEvent(listener, req)) })...))
}

// refuseStale refuses a request whose QPN or communication ID is that of an earlier connection, of the Manager of: its
// peer has lost that one and restarted (IBTA 12.9.8.3.1). Called with mu held, which it releases.
func (m *Manager) refuseStale(src netip.Addr, tid uint64, req *mad.REQ, of *Manager, old *record) {
	m.mu.Unlock()
	m.answer(src, tid, refusal(req.LocalCommID, verbs.RejectStale))
	of.evict(old)
}

// check finds the listener of a request, or sets the reason in rej why it is refused.
func (m *Manager) check(src netip.Addr, req *mad.REQ, rej *mad.REJ) (*cmID, mad.PrivateHeader) {
	var h mad.PrivateHeader
	port, ok := mad.ServicePort(req.ServiceID)
	listener := m.listeners[port]
	if !ok || listener == nil || m.closed {
		rej.Reason = verbs.RejectInvalidServiceID
		return nil, h
	}
	h, err := mad.ParsePrivateHeader(req.PrivateData[:])
	switch {
	case req.TransportType != mad.TransportRC:
		rej.Reason = rejectInvalidTransport
	case req.Primary.RemoteGID != verbs.GIDFrom(m.addr):
		// The REJ includes the GID that would have been right.
		gid := verbs.GIDFrom(m.addr)
		rej.Reason = verbs.RejectInvalidGID
		rej.InfoLength = uint8(copy(rej.ARI[:], gid[:]))
	case err != nil, req.Primary.LocalGID != verbs.GIDFrom(src),
		h.Source != src.WithZone(""), h.Destination != m.addr.WithZone(""):
		// The path in the REQ must be the one that it arrived by: the QP will use it.
		rej.Reason = verbs.RejectConsumer
	case !wire.PKeyMatch(req.PKey, wire.DefaultPKey):
		rej.Reason = verbs.RejectUnsupported // its packets would be dropped; this case has no reason of its own
	case req.PathMTU.Bytes() == 0 || req.PathMTU > m.attr.ActiveMTU:
		rej.Reason = verbs.RejectInvalidMTU
	case m.full(src, listener):
		rej.Reason = verbs.RejectNoResources
	}
	return listener, h
}

// request makes the identifier and the connection for a request to listener.
func (m *Manager) request(listener *cmID, remote netip.AddrPort) *record {
	id := m.newID(listener.handler)
	id.state = idRequest
	id.local = netip.AddrPortFrom(m.addr, listener.local.Port())
	id.remote = remote
	r := m.newRecord(id)
	r.listener = listener
	listener.waiting++
	return r
}

// requestEvent presents a REQ from the receiver's side: what the peer serves is what we may have outstanding, and vice
// versa.
func requestEvent(listener *cmID, req *mad.REQ) verbs.CMEvent {
	return verbs.CMEvent{
		Type:   verbs.CMConnectRequest,
		Listen: listener,
		Param: verbs.ConnParam{
			PrivateData:        req.PrivateData[mad.PrivateHeaderSize:],
			ResponderResources: req.InitiatorDepth,
			InitiatorDepth:     req.ResponderResources,
			FlowControl:        req.FlowControl,
			RetryCount:         req.RetryCount,
			RNRRetryCount:      req.RNRRetryCount,
			PathMTU:            req.PathMTU,
		},
	}
}
