package simnet

import (
	"net/netip"
	"time"
)

// Port is what all paths to one address share: the sender at the last hop, such as a switch
// port. Its queue is where several senders compete.
type Port struct {
	Bandwidth int64 // bytes of IP packets per second; 0 for no limit
	Queue     int   // bytes that may wait, beyond which datagrams are dropped; 0 for no limit
	MarkAbove int   // bytes waiting above which ECN-capable datagrams are marked; 0 for never
}

// SetPort makes everything for an address wait in one queue, after that of its own Link. The
// queue is in the order of sending, whatever the latencies of the paths.
func (n *Network) SetPort(to netip.Addr, port Port) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[to] = &queue{limit: port}
}

// Queued returns how many bytes wait at the port of an address.
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

// waiting returns how many bytes have not left at now.
func (q *queue) waiting(now time.Time) int {
	return int(max(0, q.free.Sub(now)).Seconds() * float64(q.limit.Bandwidth))
}

// enter returns when d, which arrives at now, has left after everything queued before it; ok is
// false if the queue is full. It marks d if the queue is long, and says so.
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

// mark sets congestion experienced if the datagram's sender is capable of ECN.
func (d *Datagram) mark() bool {
	if d.TrafficClass&ecnMask == 0 {
		return false
	}
	d.TrafficClass |= ecnCE
	return true
}
