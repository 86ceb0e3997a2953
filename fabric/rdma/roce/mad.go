package roce

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// madSize is the length of every management datagram (IBTA 13.4.2).
const madSize = 256

// madBacklog is how many management datagrams may wait in each direction: more than arrive in a turn of the engine, so
// that a peer that floods the device doesn't cause others' datagrams to be dropped before the handler can choose.
// Dropped ones are sent again: connection management has timers of its own.
const madBacklog = 2048

// madRing holds datagrams with their peers' addresses. It grows as needed and never shrinks.
type madRing struct {
	ring    []mad
	head, n int
}

type mad struct {
	peer netip.Addr
	data [madSize]byte
}

func (r *madRing) push(peer netip.Addr, b []byte) bool {
	if r.n == madBacklog {
		return false
	}
	if r.n == len(r.ring) {
		ring := make([]mad, min(max(2*r.n, 8), madBacklog))
		n := copy(ring, r.ring[r.head:])
		copy(ring[n:], r.ring[:r.head])
		r.ring, r.head = ring, 0
	}
	m := &r.ring[(r.head+r.n)%len(r.ring)]
	m.peer = peer
	copy(m.data[:], b)
	r.n++
	return true
}

func (r *madRing) front() *mad { return &r.ring[r.head] }

func (r *madRing) pop() {
	r.head = (r.head + 1) % len(r.ring)
	r.n--
}

// qp1 is the general services queue pair: management datagrams, best effort.
type qp1 struct {
	handler func(src netip.Addr, mad []byte)
	settle  func() // may be nil
	in, out madRing
	psn     wire.PSN
	buf     [madSize]byte // the handler's
}

// SendMAD sends a management datagram of 256 bytes from QP 1 to QP 1 of dst. It copies mad
// and doesn't wait for the network. A datagram for which there is no room is lost.
func (d *Device) SendMAD(dst netip.Addr, mad []byte) error {
	const op = "send MAD"
	dst = bare(dst)
	if len(mad) != madSize {
		return d.failf(op, verbs.ErrInvalid, "%d bytes: want %d", len(mad), madSize)
	}
	if !dst.IsValid() || dst.Is4() != d.self.Addr().Is4() {
		return d.failf(op, verbs.ErrInvalid, "destination %v from %v", dst, d.self.Addr())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.fail(op, verbs.ErrClosed)
	}
	if !d.gsi.out.push(dst, mad) {
		d.counters.inc(MADsDropped) // as good as lost on the way
	}
	d.postedOutside()
	return nil
}

// HandleMADs makes handler the receiver of the management datagrams that arrive. It is called
// without a lock of the device, one datagram at a time. A call that began before HandleMADs
// may still be running when it returns.
func (d *Device) HandleMADs(handler func(src netip.Addr, mad []byte)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gsi.handler = handler
}

// SettleMADs sets settle, which waits, for a short time, until the datagrams that the handler was called with have
// taken effect. It is called without a lock of the device.
func (d *Device) SettleMADs(settle func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gsi.settle = settle
}

// emitMADs adds the waiting datagrams to t. The device's lock is held.
func (d *Device) emitMADs(t *txBatch) {
	g := &d.gsi
	for g.out.n > 0 && !t.full() {
		m := g.out.front()
		p := &t.packet
		p.BTH = wire.BTH{Opcode: wire.UDSendOnly, MigReq: true, PKey: wire.DefaultPKey, DestQP: wire.QP1, PSN: g.psn}
		p.DETH = wire.DETH{QKey: wire.QP1QKey, SrcQP: wire.QP1}
		dst := d.peer(m.peer)
		// The slot may be used again before the batch has left, so the data is copied.
		t.gathered = append(t.gathered[:0], m.data[:])
		t.addTo(dst, noEngine, wire.NewFlow(d.self, dst), d.cfg.SocketClass(), madSize, true)
		g.psn = g.psn.Next()
		g.out.pop()
		d.counters.inc(MADsSent)
	}
}

// takeDatagram takes a UD packet: only QP 1 accepts any.
func (d *Device) takeDatagram(p *wire.Packet, src netip.Addr) {
	c := &d.counters
	switch {
	case p.DestQP != wire.QP1:
		c.inc(NoQP)
	case !wire.PKeyMatch(p.PKey, wire.DefaultPKey):
		c.inc(BadPKey)
	case p.DETH.QKey != wire.QP1QKey:
		c.inc(BadQKey)
	case p.Opcode != wire.UDSendOnly || len(p.Payload) != madSize:
		c.inc(Malformed)
	case d.gsi.handler == nil || !d.gsi.in.push(src, p.Payload):
		c.inc(MADsDropped)
	default:
		c.inc(MADsReceived)
	}
}

// dispatchMADs calls the handler for the datagrams that are waiting now. The device's lock is held, but not during the
// calls.
func (d *Device) dispatchMADs() {
	g := &d.gsi
	for range g.in.n {
		m := g.in.front()
		src, handler := m.peer, g.handler
		g.buf = m.data
		g.in.pop()
		if handler == nil {
			continue
		}
		d.mu.Unlock()
		handler(src, g.buf[:])
		d.mu.Lock()
	}
}
