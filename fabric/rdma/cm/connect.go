package cm

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// checkParam returns an error if a consumer's parameters are invalid.
func checkParam(p verbs.ConnParam, private int) error {
	switch {
	case len(p.PrivateData) > private:
		return fmt.Errorf("%w: %d bytes of private data, at most %d fit", verbs.ErrInvalid, len(p.PrivateData), private)
	case p.RetryCount > 7:
		return fmt.Errorf("%w: retry count %d, at most 7", verbs.ErrInvalid, p.RetryCount)
	case p.RNRRetryCount > 7:
		return fmt.Errorf("%w: RNR retry count %d, at most 7", verbs.ErrInvalid, p.RNRRetryCount)
	case p.PathMTU != 0 && p.PathMTU.Bytes() == 0:
		return fmt.Errorf("%w: path MTU code %d, want 0 (the port's) or 1 (256 bytes) to 5 (4096)", verbs.ErrInvalid, p.PathMTU)
	}
	return nil
}

// Connect sends the REQ.
func (id *cmID) Connect(p verbs.ConnParam) error {
	const op = "connect to"
	m := id.m
	if err := id.begin(op, idRouted); err != nil {
		return err
	}
	err := checkParam(p, mad.ULPPrivateSize)
	switch {
	case err != nil:
	case id.qp == nil:
		err = fmt.Errorf("%w: no QP yet", verbs.ErrState)
	case len(m.table.byLocal) >= m.cfg.MaxConnections:
		err = fmt.Errorf("%w: %d connections", verbs.ErrNoMemory, m.cfg.MaxConnections)
	}
	if err != nil {
		m.mu.Unlock()
		return id.opError(op, err)
	}
	id.state = idActive
	id.param = m.limit(p)
	if p.PathMTU == 0 || p.PathMTU > id.pathMTU {
		id.param.PathMTU = id.pathMTU
	}
	r := m.newRecord(id)
	r.localQPN = id.qp.QPNum()
	r.tid = m.newTID()
	m.enter(r)
	req := m.makeREQ(r, id.param)
	m.finish(r, m.apply(r, func(fx *effects) { r.connect(time.Now(), req, fx) }))
	return nil
}

// makeREQ returns the REQ of r, filled in as Linux's rdma_cm does.
func (m *Manager) makeREQ(r *record, p verbs.ConnParam) *mad.REQ {
	req := &mad.REQ{
		LocalCommID: r.ids.Local, ServiceID: mad.ServiceID(r.peer.Port()), LocalCAGUID: m.attr.NodeGUID,
		Options:  m.kindOffer(r.peer.Addr()),
		LocalQPN: r.localQPN, StartingPSN: random32() & 0xffffff,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		RemoteResponse: responseCode, LocalResponse: responseCode, MaxCMRetries: maxCMRetries,
		TransportType: mad.TransportRC, FlowControl: p.FlowControl,
		RetryCount: p.RetryCount, RNRRetryCount: p.RNRRetryCount,
		PKey: 0xffff, PathMTU: p.PathMTU,
		// RoCE has no LIDs. The alternate path stays zero: anything else would name a path that has to exist.
		Primary: mad.Path{
			LocalLID: 0xffff, RemoteLID: 0xffff,
			LocalGID: verbs.GIDFrom(r.local.Addr()), RemoteGID: verbs.GIDFrom(r.peer.Addr()),
			FlowLabel: flowLabel(r.local.Port(), r.peer.Port()), HopLimit: defaultHopLimit,
			TrafficClass: m.cfg.TrafficClass,
			ACKTimeout:   m.ownACKTimeout(),
		},
	}
	h := mad.PrivateHeader{SourcePort: r.local.Port(), Source: r.local.Addr(), Destination: r.peer.Addr()}
	copy(req.PrivateData[:], append(h.Bytes(), p.PrivateData...))
	return req
}

// establish moves the QP of an identifier whose REP has arrived to RTS, and confirms the connection. It runs in the
// manager's goroutine.
func (m *Manager) establish(id *cmID) {
	m.mu.Lock()
	r, qp := id.rec, id.qp
	if r.state != stateREPRcvd {
		m.mu.Unlock()
		return
	}
	r.qpACK = min(ackTimeout(r.rep.TargetACKDelay, packetLifeCode), maxACKTimeout)
	attr := m.activeAttr(r, id.param)
	rep := r.rep
	m.mu.Unlock()

	err := toRTS(qp, attr)

	m.mu.Lock()
	m.finish(r, m.apply(r, func(fx *effects) {
		switch {
		case r.state != stateREPRcvd: // destroyed or ended meanwhile
		case err != nil:
			r.refuse(verbs.RejectNoResources, fx)
			err = &OpError{"connect to", r.peer, fmt.Errorf("QP to RTS: %w", err)}
			fx.event(verbs.CMEvent{Type: verbs.CMConnectError, Err: err})
		default:
			r.ready(verbs.ConnParam{
				PrivateData:        rep.PrivateData[:],
				ResponderResources: attr.MaxDestRdAtomic,
				InitiatorDepth:     attr.MaxRdAtomic,
				FlowControl:        rep.FlowControl,
				RetryCount:         attr.RetryCnt,
				RNRRetryCount:      rep.RNRRetryCount,
			}, fx)
		}
	}))
}

// Listen accepts connection requests on a port. Port 0 selects a free one: see LocalAddr.
func (id *cmID) Listen(local netip.AddrPort, backlog int) error {
	const op = "listen on"
	m := id.m
	if backlog <= 0 {
		backlog = defaultBacklog
	}
	a := local.Addr().Unmap()
	if a.IsValid() && !a.IsUnspecified() && a != m.addr {
		return &OpError{op, local, fmt.Errorf("%w: device %s has address %v", ErrUnreachable, m.attr.Name, m.addr)}
	}
	if err := id.begin(op, idIdle); err != nil {
		return err
	}
	defer m.mu.Unlock()
	port := local.Port()
	if port == 0 {
		port = m.freePort()
	}
	if m.listeners[port] != nil {
		return &OpError{op, local, ErrAddrInUse}
	}
	id.state, id.backlog = idListens, backlog
	id.local = netip.AddrPortFrom(m.addr, port)
	m.listeners[port] = id
	return nil
}

// freePort returns an ephemeral port that nobody listens on, or any if there is none. Called with mu held.
func (m *Manager) freePort() uint16 {
	port := ephemeralPort()
	for range ephemeralPorts {
		if m.listeners[port] == nil {
			break
		}
		port = firstEphemeral | (port + 1)
	}
	return port
}

// Accept moves the QP to RTS and sends the REP. The retry count of p is not used: the passive side uses that of the
// REQ; p.RNRRetryCount is the one for the peer to use.
func (id *cmID) Accept(p verbs.ConnParam) error {
	const op = "accept"
	m := id.m
	if err := id.begin(op, idRequest); err != nil {
		return err
	}
	r, qp := id.rec, id.qp
	err := checkParam(p, mad.REPPrivateSize)
	switch {
	case err != nil:
	case !r.state.awaitsOwner() || id.accepting:
		err = fmt.Errorf("%w: the request is answered or gone", verbs.ErrState)
	case qp == nil:
		err = fmt.Errorf("%w: no QP yet", verbs.ErrState)
	}
	if err != nil {
		m.mu.Unlock()
		return id.opError(op, err)
	}
	id.accepting = true
	rep := m.makeREP(r, qp, m.limit(p))
	attr := m.passiveAttr(r, rep)
	r.localQPN = rep.LocalQPN
	m.mu.Unlock()

	err = toRTS(qp, attr)

	m.mu.Lock()
	waits := r.state.awaitsOwner()
	m.finish(r, m.apply(r, func(fx *effects) {
		switch {
		case !waits:
		case err != nil:
			r.reject(verbs.RejectNoResources, nil, fx)
		default:
			r.accept(time.Now(), rep, fx)
		}
	}))
	switch {
	case err != nil:
		return id.opError(op, fmt.Errorf("QP to RTS: %w", err))
	case !waits:
		return id.opError(op, fmt.Errorf("%w: the peer gave up", verbs.ErrState))
	}
	return nil
}

// makeREP returns the REP of r: READ counts are the lower of both sides'.
func (m *Manager) makeREP(r *record, qp verbs.QP, p verbs.ConnParam) *mad.REP {
	rep := &mad.REP{
		CommIDs: r.ids, LocalQPN: qp.QPNum(), Options: m.answerTo(&r.req, r.peer.Addr()), StartingPSN: random32() & 0xffffff,
		ResponderResources: min(p.ResponderResources, r.req.InitiatorDepth),
		InitiatorDepth:     min(p.InitiatorDepth, r.req.ResponderResources),
		TargetACKDelay:     m.attr.AckDelay, FlowControl: p.FlowControl,
		RNRRetryCount: p.RNRRetryCount, LocalCAGUID: m.attr.NodeGUID,
	}
	if r.req.Alternate != (mad.Path{}) {
		rep.FailoverAccepted = mad.FailoverUnsupported
	}
	copy(rep.PrivateData[:], p.PrivateData)
	return rep
}

// Reject answers a connection request with reason 28.
func (id *cmID) Reject(private []byte) error {
	const op = "reject"
	m := id.m
	if err := id.begin(op, idRequest); err != nil {
		return err
	}
	r := id.rec
	err := checkParam(verbs.ConnParam{PrivateData: private}, mad.REJPrivateSize)
	if err == nil && (!r.state.awaitsOwner() || id.accepting) {
		err = fmt.Errorf("%w: the request is answered or gone", verbs.ErrState)
	}
	if err != nil {
		m.mu.Unlock()
		return id.opError(op, err)
	}
	m.finish(r, m.apply(r, func(fx *effects) { r.reject(verbs.RejectConsumer, private, fx) }))
	return nil
}

// Disconnect moves the QP to ERR and sends the DREQ, or the DREP if a DREQ was received. Repeating it has no effect.
func (id *cmID) Disconnect() error {
	const op = "disconnect from"
	m := id.m
	m.mu.Lock()
	r, qp := id.rec, id.qp
	if id.destroyed || r == nil || qp == nil || r.state < stateREPSent {
		m.mu.Unlock()
		return id.opError(op, fmt.Errorf("%w: no connection", verbs.ErrState))
	}
	m.mu.Unlock()
	err := qp.Modify(verbs.QPAttr{State: verbs.Err}) // before the DREQ: no packet may follow it

	m.mu.Lock()
	m.finish(r, m.apply(r, func(fx *effects) { r.disconnect(time.Now(), fx) }))
	if err != nil {
		return id.opError(op, fmt.Errorf("QP to ERR: %w", err))
	}
	return nil
}
