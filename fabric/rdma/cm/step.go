package cm

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// effects is the actions that a step of a conn asks for, in order.
type effects struct {
	sends     []outgoing
	events    []connEvent
	duplicate bool // the message is a repetition
	dropped   bool // the message is not valid in this state
}

// outgoing is a message to send to the peer.
type outgoing struct {
	tid   uint64
	msg   mad.Message
	again bool // a retransmission
}

// connEvent is an event for the owner or, if replied is set, for the Manager: the REP has arrived, so the QP has to be
// moved, and ready or refuse called.
type connEvent struct {
	replied bool
	verbs.CMEvent
}

func (fx *effects) send(tid uint64, m mad.Message) {
	fx.sends = append(fx.sends, outgoing{tid: tid, msg: m})
}

func (fx *effects) event(e verbs.CMEvent) {
	fx.events = append(fx.events, connEvent{CMEvent: e})
}

// apply runs one step of a connection and updates the table, the counters and the event queue accordingly. Called with
// mu held; the packets it returns are for finish.
func (m *Manager) apply(r *record, step func(fx *effects)) []packet {
	var fx effects
	step(&fx)
	m.countStep(r, &fx)
	if !m.down {
		m.table.moved(r)
	}
	r.was = r.state
	for _, e := range fx.events {
		if r.owner != nil {
			m.events = append(m.events, queuedEvent{r.owner, e})
		}
	}
	if r.listener != nil && !r.state.awaitsOwner() {
		r.listener.waiting--
		r.listener = nil
	}
	switch {
	case m.down: // a call that had released mu, for its QP, while Close ended everything
	case r.state != stateClosed:
		m.table.arm(r)
	case !r.removed:
		r.removed = true
		m.table.remove(r)
		m.counters.Connections.Add(-1)
	}
	out := make([]packet, len(fx.sends))
	for i, s := range fx.sends {
		out[i] = m.encode(r.peer.Addr(), s)
	}
	return out
}

// packet is an encoded message to be sent.
type packet struct {
	dst   netip.Addr
	attr  mad.AttributeID
	again bool
	mad   [mad.Size]byte
}

func (m *Manager) encode(dst netip.Addr, s outgoing) packet {
	p := packet{dst: dst, attr: s.msg.AttributeID(), again: s.again}
	mad.Append(p.mad[:0], s.tid, s.msg)
	if rej, ok := s.msg.(*mad.REJ); ok {
		m.counters.RejectsSent.Of(rej.Reason).Add(1)
	}
	return p
}

// finish releases mu and sends what apply returned.
func (m *Manager) finish(r *record, out []packet) {
	m.mu.Unlock()
	for i := range out {
		err := m.sendPacket(&out[i])
		if out[i].attr == mad.AttrREQ && err != nil {
			m.mu.Lock()
			m.finish(r, m.apply(r, func(fx *effects) { r.unsent(err, fx) }))
		}
	}
	m.inbox.kick()
}

func (m *Manager) sendPacket(p *packet) error {
	m.counters.Sent.Of(p.attr).Add(1)
	if p.again {
		m.counters.Retransmits.Add(1)
	}
	err := m.dev.SendMAD(p.dst, p.mad[:])
	if err != nil {
		m.counters.SendErrors.Add(1)
	}
	return err
}

// countStep counts what a step did to a connection.
func (m *Manager) countStep(r *record, fx *effects) {
	c := &m.counters
	if fx.duplicate {
		c.Duplicates.Add(1)
	}
	if fx.dropped {
		c.Dropped.Add(1)
	}
	c.HalfOpen.Add(int64(change(r.was.halfOpen(), r.state.halfOpen())))
	for _, e := range fx.events {
		switch e.Type {
		case verbs.CMEstablished:
			if r.was == stateREPRcvd {
				c.Connects.Add(1)
			} else {
				c.Accepts.Add(1)
			}
		case verbs.CMUnreachable:
			c.Unreachable.Add(1)
		}
	}
	if r.was == stateEstablished && r.state != stateEstablished {
		c.Disconnects.Add(1)
	}
}
