package simnet

import (
	"time"
)

// Link describes the way from one address to another. The zero value is a perfect one.
// Probabilities are per datagram, 0 to 1.
type Link struct {
	Latency   time.Duration
	Jitter    time.Duration // up to this is added at random; datagrams overtake each other
	Bandwidth int64         // bytes of IP packets per second; 0 for no limit
	Queue     int           // bytes that may wait for Bandwidth, more are dropped; 0 for no limit
	MarkAbove int           // bytes waiting from which ECN-capable ones are marked; 0 for never

	Loss         float64
	Duplicate    float64
	Corrupt      float64       // one bit is changed
	Reorder      float64       // delayed by ReorderDelay
	ReorderDelay time.Duration // 0 means 1 ms
}

// path is the state of one way.
type path struct {
	own  *Link     // nil where the default applies
	free time.Time // when the last datagram accepted has left
}

func (n *Network) path(w way) *path {
	p := n.paths[w]
	if p == nil {
		p = new(path)
		n.paths[w] = p
	}
	return p
}

func (n *Network) isCut(w way) bool {
	if len(n.cut) == 0 {
		return false
	}
	from, to := w, w
	from.to, to.from = way{}.to, way{}.from
	return n.cut[w] || n.cut[from] || n.cut[to] || n.cut[way{}]
}

// Congestion codes in the two low bits of the traffic class (RFC 3168).
const (
	ecnMask = 3
	ecnCE   = 3
)

// headerSize is what IP and UDP headers add to a datagram.
func headerSize(v6 bool) int {
	if v6 {
		return 40 + 8
	}
	return 20 + 8
}

// transmit lets d go through the filter and over its link. d.Payload belongs to the network.
func (n *Network) transmit(d *Datagram, now time.Time) {
	action := n.decide(d)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Sent++
	w := way{d.Src.Addr(), d.Dst.Addr()}
	switch {
	case action.Drop:
		n.stats.Filtered++
		return
	case n.isCut(w):
		n.stats.Cut++
		return
	}
	p := n.path(w)
	link := &n.standard
	if p.own != nil {
		link = p.own
	}
	left, ok := n.queue(p, link, d, now)
	if !ok {
		n.stats.QueueFull++
		return
	}
	fate := link.Draw(n.rng, d.Payload)
	if fate.Lost {
		n.stats.Lost++
		return
	}
	if fate.Corrupted {
		n.stats.Corrupted++
	}
	copies := 1 + action.Copies
	if fate.Duplicated {
		copies++
	}
	n.stats.Duplicated += copies - 1
	for range copies {
		took, late := link.Transit(n.rng)
		if late {
			n.stats.Reordered++
		}
		n.arrive(d, left.Add(action.Delay+took))
	}
}

// decide asks the filter.
func (n *Network) decide(d *Datagram) Action {
	n.mu.Lock()
	filter := n.filter
	n.mu.Unlock()
	if filter == nil {
		return Action{}
	}
	n.filterMu.Lock()
	defer n.filterMu.Unlock()
	return filter(d)
}

// queue says when d has left the sender, behind what waits before it; false where the queue is
// full. It marks d where the queue is long.
func (n *Network) queue(p *path, link *Link, d *Datagram, now time.Time) (time.Time, bool) {
	if link.Bandwidth <= 0 {
		return now, true
	}
	size := len(d.Payload) + headerSize(d.Dst.Addr().Is6())
	wait := max(0, p.free.Sub(now))
	waiting := int(wait.Seconds() * float64(link.Bandwidth))
	if link.Queue > 0 && waiting+size > link.Queue {
		return now, false
	}
	if link.MarkAbove > 0 && waiting > link.MarkAbove && d.TrafficClass&ecnMask != 0 {
		d.TrafficClass |= ecnCE
		n.stats.Marked++
	}
	took := time.Duration(float64(size) / float64(link.Bandwidth) * float64(time.Second))
	p.free = now.Add(wait + took)
	return p.free, true
}

// arrive puts d on its way to the endpoint that listens.
func (n *Network) arrive(d *Datagram, due time.Time) {
	e := n.endpoints[d.Dst]
	if e == nil {
		n.stats.Unbound++
		return
	}
	n.sequence++
	e.expect(arrival{
		due: due, sequence: n.sequence,
		src: d.Src, class: d.TrafficClass, payload: d.Payload,
	})
}
