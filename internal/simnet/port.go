package simnet

import (
	"net/netip"
	"time"
)

// Port is what the ways to one address share: the last hop's sender, a switch's port. Its queue
// is where several senders meet.
type Port struct {
	Bandwidth int64 // bytes of IP packets per second; 0 for no limit
	Queue     int   // bytes that may wait, more are dropped; 0 for no limit
	MarkAbove int   // bytes waiting from which ECN-capable ones are marked; 0 for never
}

// SetPort has everything for an address wait in one queue, behind that of its own Link. What
// waits there is in the order of sending, whatever the ways' latencies.
func (n *Network) SetPort(to netip.Addr, port Port) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[to] = &queue{limit: port}
}

// Queued is how many bytes wait at the port of an address.
func (n *Network) Queued(to netip.Addr) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if q := n.ports[to]; q != nil {
		return q.waiting(time.Now())
	}
	return 0
}

// queue is a line of datagrams at a transmitter of limited bandwidth.
type queue struct {
	limit Port
	free  time.Time // when the last datagram accepted has left
}

// waiting is how many bytes have not left at now.
func (q *queue) waiting(now time.Time) int {
	return int(max(0, q.free.Sub(now)).Seconds() * float64(q.limit.Bandwidth))
}

// enter says when d, which comes at now, has left behind what waits before it; false where the
// queue is full. It marks d where the queue is long, and says so.
func (q *queue) enter(d *Datagram, now time.Time) (left time.Time, marked, ok bool) {
	if q.limit.Bandwidth <= 0 {
		return now, false, true
	}
	size := len(d.Payload) + headerSize(d.Dst.Addr().Is6())
	waiting := q.waiting(now)
	if q.limit.Queue > 0 && waiting+size > q.limit.Queue {
		return now, false, false
	}
	if q.limit.MarkAbove > 0 && waiting > q.limit.MarkAbove {
		marked = d.mark()
	}
	took := time.Duration(float64(size) / float64(q.limit.Bandwidth) * float64(time.Second))
	if q.free.Before(now) {
		q.free = now
	}
	q.free = q.free.Add(took)
	return q.free, marked, true
}

// Congestion codes in the two low bits of the traffic class (RFC 3168).
const (
	ecnMask = 3
	ecnCE   = 3
)

// mark says that congestion was experienced, where the datagram's sender understands that.
func (d *Datagram) mark() bool {
	if d.TrafficClass&ecnMask == 0 {
		return false
	}
	d.TrafficClass |= ecnCE
	return true
}
