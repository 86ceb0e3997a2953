package cm

import (
	"crypto/rand"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Device is what a Manager needs: an RDMA device that also carries management datagrams (MADs) to and from queue pair 1,
// the general services interface. Each MAD is the payload of one UD SEND_ONLY from QP 1 to QP 1 with Q_Key 0x80010000
// and P_Key 0xffff. Delivery is best effort.
type Device interface {
	verbs.Device

	// SendMAD sends the 256 bytes of mad (mad.Size) to dst. It copies mad before it returns, does not wait for the
	// network, and may be called from any goroutine, and inside the handler. An error says that dst can't be reached or
	// that the device is closed. A full queue is none: it counts as loss, which the timers of this package recover.
	SendMAD(dst netip.Addr, mad []byte) error

	// HandleMADs makes handler the receiver of arriving MADs; nil removes it, after which no call begins. The handler
	// is called in the device's own context, one MAD at a time, with no lock of the device held; it must not block. src
	// is the sender's IP address, unmapped; mad has 256 bytes and is valid during the call.
	HandleMADs(handler func(src netip.Addr, mad []byte))
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
	made      uint32     // communication IDs
	siblings  []*Manager // the others at this address
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
		r.ids.Local = m.commID()
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

// random32 is unpredictable: IDs and PSNs keep strangers from impersonating a peer.
func random32() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint32(b[:])
}
