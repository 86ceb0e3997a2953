package cm

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// remoteAccess returns what a QP lets its peer do. WRITE is always allowed; READ and atomics need responder resources.
// The active side doesn't know these when the QP is made: there, 0 responder resources (MaxDestRdAtomic) keep READs
// out.
func (id *cmID) remoteAccess() verbs.Access {
	all := verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	if id.state == idRequest && id.rec.req.InitiatorDepth == 0 {
		return verbs.AccessRemoteWrite
	}
	return all
}

// ownACKTimeout returns the ACK timeout that a peer of this device should use.
func (m *Manager) ownACKTimeout() uint8 { return ackTimeout(m.attr.AckDelay, packetLifeCode) }

// peerACKTimeout returns the ACK timeout of a passive QP: the one that the peer asks for in the REQ, within bounds. 0
// would mean to wait for an ACK forever.
func (m *Manager) peerACKTimeout(req *mad.REQ) uint8 {
	if req.Primary.ACKTimeout == 0 {
		return m.ownACKTimeout()
	}
	return min(max(req.Primary.ACKTimeout, minACKTimeout), maxACKTimeout)
}

// activeAttr returns the QP attributes of the active side, for RTR and RTS. The starting PSN in a message is the one
// that its receiver begins with.
func (m *Manager) activeAttr(r *record, p verbs.ConnParam) verbs.QPAttr {
	return verbs.QPAttr{
		Remote:          r.peer.Addr(),
		PeerVendorID:    m.vendorOf(r.rep.Options, answered),
		VendorOptions:   m.featuresOf(r.rep.Options, answered) & m.featuresOf(r.req.Options, offered),
		TrafficClass:    r.req.Primary.TrafficClass,
		DestQPN:         r.remoteQPN,
		PathMTU:         r.req.PathMTU,
		RQPSN:           r.req.StartingPSN,
		SQPSN:           r.rep.StartingPSN,
		MaxDestRdAtomic: min(p.ResponderResources, r.rep.InitiatorDepth),
		MaxRdAtomic:     min(p.InitiatorDepth, r.rep.ResponderResources),
		MinRNRTimer:     minRNRTimer,
		Timeout:         r.qpACK,
		RetryCnt:        p.RetryCount,
		RNRRetry:        r.rep.RNRRetryCount,
	}
}

// passiveAttr returns those of the passive side, which takes its retry counts from the REQ.
func (m *Manager) passiveAttr(r *record, rep *mad.REP) verbs.QPAttr {
	return verbs.QPAttr{
		Remote:          r.peer.Addr(),
		PeerVendorID:    m.vendorOf(r.req.Options, offered),
		VendorOptions:   m.featuresOf(rep.Options, answered),
		TrafficClass:    r.req.Primary.TrafficClass,
		DestQPN:         r.remoteQPN,
		PathMTU:         r.req.PathMTU,
		RQPSN:           rep.StartingPSN,
		SQPSN:           r.req.StartingPSN,
		MaxDestRdAtomic: rep.ResponderResources,
		MaxRdAtomic:     rep.InitiatorDepth,
		MinRNRTimer:     minRNRTimer,
		Timeout:         r.qpACK,
		RetryCnt:        r.req.RetryCount,
		RNRRetry:        r.req.RNRRetryCount,
	}
}

// toRTS moves a QP from INIT through RTR to RTS.
func toRTS(qp verbs.QP, attr verbs.QPAttr) error {
	attr.State = verbs.RTR
	if err := qp.Modify(attr); err != nil {
		return err
	}
	attr.State = verbs.RTS
	return qp.Modify(attr)
}

// limit reduces a consumer's READ counts to what the device supports.
func (m *Manager) limit(p verbs.ConnParam) verbs.ConnParam {
	p.ResponderResources = uint8(min(int(p.ResponderResources), m.attr.MaxQPRdAtom))
	p.InitiatorDepth = uint8(min(int(p.InitiatorDepth), m.attr.MaxQPInitAtom))
	return p
}

// pathMTU returns the largest path MTU of a connection with peer.
func (m *Manager) pathMTU(peer netip.Addr) verbs.MTU {
	if m.cfg.PathMTU == nil {
		return m.attr.ActiveMTU
	}
	return min(m.cfg.PathMTU(peer), m.attr.ActiveMTU)
}
