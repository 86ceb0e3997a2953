package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// Traffic classes: the DSCP above two bits for ECN.
const (
	ecnCapable = 2 // ECT(0), of every packet
	ecnMask    = 3

	// cnpClass is the class of congestion notifications, which should not queue with other packets: DSCP 48, as for
	// ConnectX.
	cnpClass = 48<<2 | ecnCapable
)

// SocketClass returns the traffic class of most packets that a device with this Config sends. The others cost the
// socket more: packets of connections whose peer asked for another DSCP, and congestion notifications.
func (c Config) SocketClass() uint8 { return c.TrafficClass&^ecnMask | ecnCapable }

// classFor returns the traffic class of a connection to which RDMA-CM assigns class: the device's if class has no DSCP.
func (d *Device) classFor(class uint8) uint8 {
	if class &^= ecnMask; class != 0 {
		return class | ecnCapable
	}
	return d.cfg.SocketClass()
}

// cnpInterval is the minimum time between two congestion notifications to one queue pair, as DCQCN's authors chose it.
const cnpInterval = 50 * time.Microsecond

// congested handles a mark on a packet from the peer, which is to be notified.
func (q *qp) congested(now time.Duration) {
	if now-q.cnpAt < cnpInterval && q.cnpAt != 0 {
		return
	}
	q.cnpAt, q.cnpDue = now, true
	q.d.markReady(q)
}

// emitCNP sends the congestion notification that is due.
func (q *qp) emitCNP(t *txBatch) {
	q.cnpDue = false
	wire.MakeCNP(&t.packet, wire.QPN(q.attr.DestQPN))
	t.gathered = append(t.gathered[:0], t.packet.Payload)
	t.addTo(q.path.dst, q.engine, q.path.flow, cnpClass, wire.CNPPayload, true)
	q.d.counters.inc(CNPSent)
}

// onCNP slows the path down because the peer says that our packets met congestion.
func (q *qp) onCNP(now time.Duration) {
	q.d.counters.inc(CNPHandled)
	q.path.window.marked(now, q.path.rtt)
}
