package cm

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// conn is the state machine of one connection. Its methods take an event and the time and add the resulting actions to
// an effects; deadline says when timeout is due. It has no lock, clock or socket, and does not know its owner.
type conn struct {
	state       state
	local, peer netip.AddrPort
	guid        uint64 // of our device

	ids        mad.CommIDs // Local is ours; Remote is 0 until the peer has sent it
	localQPN   uint32
	remoteQPN  uint32
	remoteGUID uint64

	req mad.REQ // sent or received
	rep mad.REP // sent or received

	passive bool // made by the peer's REQ

	tid      uint64    // of the REQ and all answers to it
	dreqTID  uint64    // of the DREQ: drawn for ours, overwritten by the peer's
	asked    time.Time // when the peer's REQ came
	interval time.Duration
	retries  int // after the first interval
	qpACK    uint8

	pending    mad.Message // retransmitted until it is answered; in TIMEWAIT the REJ, if one ended the connection
	pendingTID uint64
	first      time.Time       // when it was first sent
	early      []time.Duration // when to retransmit it within the first interval, relative to first
	tries      int
	left       int       // retries left
	deadline   time.Time // zero for none
	until      time.Time // when the attempt ends at the latest, however much time the peer's MRAs ask for; zero for none
}

// connect sends req: IDLE → REQ_SENT.
func (c *conn) connect(now time.Time, req *mad.REQ, fx *effects) {
	c.req = *req
	c.state = stateREQSent
	c.interval, c.retries = reqInterval, maxCMRetries
	c.qpACK = req.Primary.ACKTimeout
	c.until = now.Add((maxCMRetries+1)*reqInterval + maxService)
	c.sendPending(now, c.tid, &c.req, earlyTries, fx)
}

// onREQ handles the request that creates a passive connection: IDLE → REQ_RCVD.
func (c *conn) onREQ(now time.Time, tid uint64, req *mad.REQ) {
	c.passive = true
	c.asked = now
	c.req = *req
	c.tid = tid
	c.ids.Remote = req.LocalCommID
	c.remoteQPN = req.LocalQPN
	c.remoteGUID = req.LocalCAGUID
	c.interval = retransmitInterval(req.LocalResponse)
	c.retries = passiveRetries(req.MaxCMRetries, c.interval)
	c.state = stateREQRcvd
}

// onDuplicateREQ handles a repetition of the REQ. The owner may be slow: an MRA tells the peer to wait, but a peer then
// waits long, so it gets one only when the response time that it allows is over. If the REP may be lost, it is sent
// again.
func (c *conn) onDuplicateREQ(now time.Time, fx *effects) {
	fx.duplicate = true
	switch c.state {
	case stateREQRcvd, stateMRAREQSent:
		if now.Sub(c.asked) < codeDuration(c.req.RemoteResponse) {
			return
		}
		c.state = stateMRAREQSent
		fx.send(c.tid, &mad.MRA{CommIDs: c.ids, Message: mad.AnswersREQ, ServiceTimeout: serviceCode})
	case stateREPSent, stateMRAREPRcvd:
		fx.sends = append(fx.sends, outgoing{c.tid, &c.rep, true})
	case stateTimewait:
		fx.send(c.tid, refusal(c.ids.Remote, verbs.RejectStale))
	}
}

// refusal returns the REJ of a REQ for which no connection was made: its local ID is 0.
func refusal(remote uint32, reason verbs.RejectReason) *mad.REJ {
	return &mad.REJ{CommIDs: mad.CommIDs{Remote: remote}, Message: mad.AnswersREQ, Reason: reason}
}

// accept sends rep: REQ_RCVD → REP_SENT. The QP is in RTS already.
func (c *conn) accept(now time.Time, rep *mad.REP, fx *effects) {
	c.rep = *rep
	c.state = stateREPSent
	c.until = now.Add(maxHalfOpenTime)
	c.sendPending(now, c.tid, &c.rep, earlyTries, fx)
}

// reject refuses the request: REQ_RCVD → closed. A refusal that is lost needs no retry: the peer asks again.
func (c *conn) reject(reason verbs.RejectReason, private []byte, fx *effects) {
	rej := refusal(c.ids.Remote, reason)
	if c.state == stateMRAREQSent {
		rej.Local = c.ids.Local
	}
	copy(rej.PrivateData[:], private)
	fx.send(c.tid, rej)
	c.close()
}

// onREP handles the peer's REP: REQ_SENT → REP_RCVD. If it is a repetition, the RTU was lost.
func (c *conn) onREP(rep *mad.REP, fx *effects) {
	if c.passive {
		fx.dropped = true
		return
	}
	switch c.state {
	case stateREQSent, stateMRAREQRcvd:
		c.rep = *rep
		c.ids.Remote = rep.Local
		c.remoteQPN = rep.LocalQPN
		c.remoteGUID = rep.LocalCAGUID
		c.state = stateREPRcvd
		c.disarm()
		fx.events = append(fx.events, connEvent{replied: true})
	case stateEstablished:
		fx.duplicate = true
		if rep.Local == c.ids.Remote {
			fx.sends = append(fx.sends, outgoing{c.tid, &mad.RTU{CommIDs: c.ids}, true})
		}
	default:
		fx.duplicate = true
	}
}

// ready is called when the QP is in RTS: REP_RCVD → ESTABLISHED. param is passed to the owner.
func (c *conn) ready(param verbs.ConnParam, fx *effects) {
	c.state = stateEstablished
	fx.send(c.tid, &mad.RTU{CommIDs: c.ids})
	fx.event(verbs.CMEvent{Type: verbs.CMEstablished, Param: param})
}

// refuse rejects the REP: REP_RCVD → closed.
func (c *conn) refuse(reason verbs.RejectReason, fx *effects) {
	fx.send(c.tid, &mad.REJ{CommIDs: c.ids, Message: mad.AnswersREP, Reason: reason})
	c.close()
}

// onMRA extends the wait for the answer to the REQ or REP.
func (c *conn) onMRA(now time.Time, m *mad.MRA, fx *effects) {
	switch {
	case m.Message == mad.AnswersREQ && c.state.awaitsREP():
		c.state = stateMRAREQRcvd
	case m.Message == mad.AnswersREP && c.state == stateREPSent:
		c.state = stateMRAREPRcvd
	default:
		fx.dropped = true
		return
	}
	c.early = nil
	c.wait(now.Add(codeDuration(m.ServiceTimeout) + codeDuration(c.qpACK)))
}

// onRTU handles the confirmation of the connection: REP_SENT → ESTABLISHED.
func (c *conn) onRTU(private []byte, fx *effects) {
	if !c.state.awaitsRTU() {
		fx.duplicate = true
		if c.state == stateTimewait && c.pending != nil { // our REJ was lost
			fx.sends = append(fx.sends, outgoing{c.pendingTID, c.pending, true})
		}
		return
	}
	c.state = stateEstablished
	c.disarm()
	fx.event(verbs.CMEvent{Type: verbs.CMEstablished, Param: verbs.ConnParam{PrivateData: private}})
}

// commEst is called when a packet has arrived on the QP, which confirms the connection as an RTU does.
func (c *conn) commEst(fx *effects) {
	if c.state.awaitsRTU() {
		c.onRTU(nil, fx)
	}
}

// onREJ ends the attempt that the REJ concerns. An established connection ends as after a disconnect.
func (c *conn) onREJ(now time.Time, rej *mad.REJ, fx *effects) {
	switch c.state {
	case stateREQSent, stateMRAREQRcvd:
		if rej.Message == mad.AnswersREP { // no REP was sent to us yet
			fx.dropped = true
			return
		}
		c.rejected(rej, fx)
	case stateREPRcvd, stateREQRcvd, stateMRAREQSent, stateREPSent, stateMRAREPRcvd:
		c.rejected(rej, fx)
	case stateEstablished, stateDREQSent:
		c.timewait(now)
		fx.event(verbs.CMEvent{Type: verbs.CMDisconnected})
	case stateDREQRcvd:
		c.timewait(now)
	default:
		fx.dropped = true
	}
}

func (c *conn) rejected(rej *mad.REJ, fx *effects) {
	c.close()
	fx.event(verbs.CMEvent{
		Type: verbs.CMRejected, Reason: rej.Reason,
		Param: verbs.ConnParam{PrivateData: rej.PrivateData[:]},
	})
}

// stale ends an attempt whose REP names a QP that belongs to another live connection.
func (c *conn) stale(fx *effects) {
	c.refuse(verbs.RejectStale, fx)
	fx.event(verbs.CMEvent{Type: verbs.CMRejected, Reason: verbs.RejectStale})
}

// disconnect ends the connection for the owner: ESTABLISHED → DREQ_SENT, DREQ_RCVD → TIMEWAIT.
// In other states there is no connection to end.
func (c *conn) disconnect(now time.Time, fx *effects) {
	switch c.state {
	case stateEstablished:
		c.state = stateDREQSent
		c.interval, c.retries = min(c.interval, dreqInterval), dreqRetries
		c.sendPending(now, c.dreqTID, &mad.DREQ{CommIDs: c.ids, RemoteQPN: c.remoteQPN}, nil, fx)
	case stateREPSent, stateMRAREPRcvd:
		// A DREQ is allowed only from ESTABLISHED on; a REJ ends the connection in every state of the peer. Nobody
		// acknowledges it, so it is repeated during TIMEWAIT, and whenever an RTU shows that it was lost.
		rej := &mad.REJ{CommIDs: c.ids, Message: mad.AnswersOther, Reason: verbs.RejectConsumer}
		c.timewait(now)
		c.until = c.deadline
		c.interval, c.retries = c.until.Sub(now)/(rejRetries+1), rejRetries
		c.sendPending(now, c.tid, rej, nil, fx)
		fx.event(verbs.CMEvent{Type: verbs.CMDisconnected})
	case stateDREQRcvd:
		fx.send(c.dreqTID, &mad.DREP{CommIDs: c.ids})
		c.timewait(now)
	}
}

// onDREQ handles the peer's request to end the connection. One that names another QP is dropped.
func (c *conn) onDREQ(now time.Time, tid uint64, dreq *mad.DREQ, fx *effects) {
	if dreq.RemoteQPN != c.localQPN {
		fx.dropped = true
		return
	}
	switch c.state {
	case stateEstablished, stateREPSent, stateMRAREPRcvd, stateREPRcvd:
		c.state = stateDREQRcvd
		c.dreqTID = tid
		c.disarm()
		fx.event(verbs.CMEvent{Type: verbs.CMDisconnected})
	case stateDREQSent: // both sides at once
		fx.send(tid, &mad.DREP{CommIDs: c.ids})
		c.timewait(now)
		fx.event(verbs.CMEvent{Type: verbs.CMDisconnected})
	case stateTimewait: // the DREP was lost
		fx.duplicate = true
		fx.sends = append(fx.sends, outgoing{tid, &mad.DREP{CommIDs: c.ids}, true})
	case stateDREQRcvd: // the owner has not answered yet
		fx.duplicate = true
	default:
		fx.dropped = true
	}
}

// onDREP ends the wait for the DREP: DREQ_SENT → TIMEWAIT.
func (c *conn) onDREP(now time.Time, fx *effects) {
	if c.state != stateDREQSent {
		fx.dropped = true
		return
	}
	c.timewait(now)
	fx.event(verbs.CMEvent{Type: verbs.CMDisconnected})
}

// timeout is called at deadline.
func (c *conn) timeout(now time.Time, fx *effects) {
	switch c.state {
	case stateREQSent, stateMRAREQRcvd:
		if c.resend(now, fx) {
			c.state = stateREQSent
			return
		}
		c.giveUp("connect to", fx)
	case stateREPSent, stateMRAREPRcvd:
		if c.resend(now, fx) {
			c.state = stateREPSent
			return
		}
		c.giveUp("accept", fx)
	case stateDREQSent:
		if !c.resend(now, fx) {
			c.timewait(now)
			fx.event(verbs.CMEvent{Type: verbs.CMDisconnected})
		}
	case stateTimewait:
		if c.pending != nil && c.resend(now, fx) {
			return
		}
		c.close()
		fx.event(verbs.CMEvent{Type: verbs.CMTimewaitExit})
	default:
		c.disarm()
	}
}

// giveUp ends an attempt that the peer doesn't answer, and tells the peer so that it can free its half.
func (c *conn) giveUp(op string, fx *effects) {
	c.sendTimeoutREJ(fx)
	c.close()
	err := fmt.Errorf("%w to %d tries; is the peer running, and does UDP port 4791 pass to it and back?",
		ErrTimeout, c.tries)
	fx.event(verbs.CMEvent{Type: verbs.CMUnreachable, Err: &OpError{op, c.peer, err}})
}

// giveWay ends a half-open connection that waits for its peer, because another one needs its place.
func (c *conn) giveWay(fx *effects) {
	c.sendTimeoutREJ(fx)
	c.close()
	fx.event(verbs.CMEvent{Type: verbs.CMUnreachable, Err: &OpError{"accept", c.peer, ErrGaveWay}})
}

func (c *conn) sendTimeoutREJ(fx *effects) {
	rej := &mad.REJ{CommIDs: c.ids, Message: mad.AnswersOther, Reason: verbs.RejectTimeout}
	rej.SetGUID(c.guid)
	fx.send(c.tid, rej)
}

// unsent ends an attempt whose REQ can't be sent.
func (c *conn) unsent(err error, fx *effects) {
	if !c.state.awaitsREP() {
		return
	}
	c.close()
	fx.event(verbs.CMEvent{Type: verbs.CMUnreachable, Err: &OpError{"connect to", c.peer, err}})
}

// abandon is called when the owner goes away: the peer is told in the way that the state allows.
func (c *conn) abandon(now time.Time, fx *effects) {
	switch c.state {
	case stateREQSent, stateMRAREQRcvd:
		c.sendTimeoutREJ(fx)
		c.close()
	case stateREPRcvd:
		c.refuse(verbs.RejectConsumer, fx)
	case stateREQRcvd, stateMRAREQSent:
		c.reject(verbs.RejectConsumer, nil, fx)
	default:
		c.disconnect(now, fx)
	}
}

// timewait keeps the IDs until no packet of the connection can be in flight any more.
func (c *conn) timewait(now time.Time) {
	c.disarm()
	c.state = stateTimewait
	c.deadline = now.Add(codeDuration(c.qpACK))
}

func (c *conn) close() {
	c.disarm()
	c.state = stateClosed
}
