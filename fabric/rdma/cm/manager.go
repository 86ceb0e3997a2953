package cm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Device is what a Manager needs: an RDMA device that also carries MADs.
type Device interface {
	verbs.Device
	Datagrams
}

// Manager establishes and ends connections of one device. It implements verbs.ConnectionManager.
type Manager struct {
	dev      Device
	attr     verbs.DeviceAttr
	addr     netip.Addr // of the device, unmapped
	cfg      Config
	counters Counters
	inbox    inbox
	answers  throttle      // used only by the goroutine, like requests and known
	requests throttle      // from strangers
	known    throttle      // from peers that have confirmed a connection
	stop     chan struct{} // closed by Close
	stopped  chan struct{} // closed when the goroutine has ended

	// mu is never held while the device or a handler is called.
	mu        sync.Mutex
	closed    bool // nothing new may begin
	down      bool // the table is empty for good
	table     table
	ids       map[*cmID]struct{}
	listeners map[uint16]*cmID
	events    []queuedEvent
	nextTID   uint64
}

// queuedEvent waits for its handler.
type queuedEvent struct {
	id *cmID
	connEvent
}

var _ verbs.ConnectionManager = (*Manager)(nil)

// New starts the connection manager of dev. It takes over the MADs of dev until Close.
func New(dev Device, cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Manager{
		dev:       dev,
		attr:      dev.Attr(),
		cfg:       cfg.withDefaults(),
		inbox:     newInbox(),
		answers:   newThrottle(),
		requests:  newThrottle(),
		known:     newThrottle(),
		stop:      make(chan struct{}),
		stopped:   make(chan struct{}),
		table:     newTable(),
		ids:       map[*cmID]struct{}{},
		listeners: map[uint16]*cmID{},
		nextTID:   uint64(random32())<<32 | uint64(random32()),
	}
	m.addr = m.attr.Addr.Unmap()
	dev.HandleMADs(m.arrived)
	go m.run()
	return m, nil
}

// Counters returns the manager's counters; they may be read at any time.
func (m *Manager) Counters() *Counters { return &m.counters }

// CreateID makes an identifier (rdma_create_id). Without a handler its events are dropped.
func (m *Manager) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, &OpError{Op: "create identifier", Err: verbs.ErrClosed}
	}
	return m.newID(handler), nil
}

func (m *Manager) newID(handler verbs.CMHandler) *cmID {
	id := &cmID{m: m, handler: handler}
	m.ids[id] = struct{}{}
	return id
}

// Close ends everything: each identifier gets CMDeviceRemoval, in whose handler it can still be disconnected and
// destroyed; then those that are left are destroyed, which tells their peers (DREQ or REJ). It waits for DREPs, but not
// long. When it returns, no handler runs and none will. It must not be called from a handler. The device stays open.
func (m *Manager) Close() error {
	m.mu.Lock()
	first := !m.closed
	m.closed = true
	m.mu.Unlock()
	if first {
		close(m.stop)
	}
	<-m.stopped
	return nil
}

// arrived receives a MAD in the device's context.
func (m *Manager) arrived(src netip.Addr, datagram []byte) {
	if !m.inbox.putMAD(src.Unmap(), datagram) {
		m.counters.Overruns.Add(1)
	}
}

// settleTime limits Settle: what it waits for may itself wait for the device.
const settleTime = 50 * time.Millisecond

// Settle waits until the MADs that have arrived are handled and their events delivered, but not for long. A device
// calls it before it lets consumers see packets that arrived with them, if they may have been waiting for a while.
func (m *Manager) Settle() {
	select {
	case <-m.inbox.settled():
	case <-time.After(settleTime):
	}
}

// run is the manager's goroutine: it handles all messages and timers and calls all handlers.
func (m *Manager) run() {
	defer close(m.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		m.setTimer(timer)
		select {
		case <-m.inbox.wake:
		case <-timer.C:
		case <-m.stop:
			m.shutdown()
			return
		}
		m.work()
	}
}

// work handles what has arrived, and the timers that are due. Consumers are told of a request before the next one is
// looked at, so that one finds the place that they free by answering.
func (m *Manager) work() {
	n, others, waiting := m.inbox.take()
	m.onNews(n)
	for i := range others {
		m.onMAD(&others[i])
		m.deliver()
		m.onNews(m.inbox.takeNews())
	}
	m.expire()
	m.deliver()
	for _, c := range waiting {
		close(c)
	}
}

// onNews handles what concerns existing connections.
func (m *Manager) onNews(n news) {
	for i := range n.mads {
		m.onMAD(&n.mads[i])
	}
	for _, id := range n.commEst {
		m.onCommEst(id)
	}
}

func (m *Manager) setTimer(timer *time.Timer) {
	m.mu.Lock()
	next := m.table.next()
	m.mu.Unlock()
	if next.IsZero() {
		timer.Stop()
		return
	}
	timer.Reset(max(time.Until(next), time.Nanosecond)) // 0 crashes the race detector, as in package roce
}

// expire runs the timers that are due.
func (m *Manager) expire() {
	now := time.Now()
	for {
		m.mu.Lock()
		next := m.table.next()
		if next.IsZero() || next.After(now) {
			m.mu.Unlock()
			return
		}
		r := m.table.timers.First()
		m.finish(r, m.apply(r, func(fx *effects) { r.timeout(now, fx) }))
	}
}

// deliver calls handlers until no event is left.
func (m *Manager) deliver() {
	for {
		m.mu.Lock()
		if len(m.events) == 0 {
			m.events = nil
			m.mu.Unlock()
			return
		}
		e := m.events[0]
		m.events[0] = queuedEvent{}
		m.events = m.events[1:]
		handler := e.id.handler
		gone := e.id.destroyed
		unwanted := e.Type == verbs.CMConnectRequest && (handler == nil || e.listenerGone())
		m.mu.Unlock()
		switch {
		case gone:
		case unwanted: // nobody would ever destroy the new identifier
			_ = e.id.Destroy() // it has no QP yet
		case e.replied:
			m.establish(e.id)
		case handler != nil:
			e.ID = e.id
			handler(e.CMEvent)
		}
	}
}

func (e *queuedEvent) listenerGone() bool {
	l, ok := e.Listen.(*cmID)
	return ok && l.destroyed
}

// shutdown ends the manager, at the end of the goroutine.
func (m *Manager) shutdown() {
	m.deliver()
	for _, id := range m.allIDs() {
		m.mu.Lock()
		handler := id.handler
		gone := id.destroyed
		m.mu.Unlock()
		if !gone && handler != nil {
			handler(verbs.CMEvent{Type: verbs.CMDeviceRemoval, ID: id})
		}
	}
	for _, id := range m.allIDs() {
		_ = id.Destroy() // the only possible error is a QP that is already gone
	}
	m.linger()
	m.dev.HandleMADs(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = true
	m.table, m.events = newTable(), nil
	m.counters.Connections.Store(0)
	m.counters.HalfOpen.Store(0)
}

// lingerTime is how long Close waits for DREPs: longer than a peer on a busy machine takes to answer, and short for a
// user whose peer is gone.
const lingerTime = time.Second

// linger handles messages until every peer that was sent a DREQ has answered, so that both sides end in order and the
// port isn't closed before the last answer. It repeats the DREQ to peers that don't answer: if it was lost, the peer
// would wait for this host until its keep-alive timeout is over.
func (m *Manager) linger() {
	end := time.NewTimer(lingerTime)
	defer end.Stop()
	again := time.NewTimer(lingerTime)
	defer again.Stop()
	for m.awaitsDREP() {
		m.setTimer(again)
		select {
		case <-m.inbox.wake:
		case <-again.C:
		case <-end.C:
			return
		}
		m.work()
	}
}

func (m *Manager) awaitsDREP() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.table.byLocal {
		if r.state == stateDREQSent {
			return true
		}
	}
	return false
}

func (m *Manager) allIDs() []*cmID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.ids))
}

// newRecord makes a connection with a free random ID. The caller adds it to the table when it is filled in.
func (m *Manager) newRecord(owner *cmID) *record {
	r := &record{owner: owner, was: stateIdle}
	r.guid = m.attr.NodeGUID
	for r.ids.Local == 0 || m.table.byLocal[r.ids.Local] != nil {
		r.ids.Local = random32()
	}
	r.dreqTID = m.newTID()
	r.local, r.peer = owner.local, owner.remote
	owner.rec = r
	return r
}

func (m *Manager) enter(r *record) {
	m.table.add(r)
	m.counters.Connections.Add(1)
}

func (m *Manager) newTID() uint64 {
	m.nextTID++
	return m.nextTID
}

// packet is an encoded message to be sent.
type packet struct {
	dst   netip.Addr
	attr  mad.AttributeID
	again bool
	mad   [mad.Size]byte
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
		out[i] = packet{dst: r.peer.Addr(), attr: s.msg.AttributeID(), again: s.again}
		mad.Append(out[i].mad[:0], s.tid, s.msg)
		if rej, ok := s.msg.(*mad.REJ); ok {
			m.counters.RejectsSent.Of(rej.Reason).Add(1)
		}
	}
	return out
}

// finish releases mu and sends what apply returned.
func (m *Manager) finish(r *record, out []packet) {
	m.mu.Unlock()
	for i := range out {
		err := m.sendPacket(&out[i])
		if out[i].attr == mad.AttrREQ && err != nil && !errors.Is(err, verbs.ErrNoMemory) {
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

// random32 is unpredictable: IDs and PSNs keep strangers from impersonating a peer.
func random32() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint32(b[:])
}
