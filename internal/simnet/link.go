package simnet

import "time"

// Link describes the path from one address to another. The zero value is a perfect path.
// Probabilities are per datagram, 0 to 1.
type Link struct {
	Latency   time.Duration
	Jitter    time.Duration // up to this much is added at random, so datagrams overtake each other
	Bandwidth int64         // bytes of IP packets per second; 0 for no limit
	Queue     int           // bytes that may wait for Bandwidth, beyond which datagrams are dropped; 0 for no limit
	MarkAbove int           // bytes waiting above which ECN-capable datagrams are marked; 0 for never

	Loss         float64
	Burst        Burst   // losses that come in bursts
	Mark         float64 // marks ECN-capable datagrams as having experienced congestion
	Duplicate    float64
	Corrupt      float64       // one bit is flipped
	Reorder      float64       // delayed by ReorderDelay
	ReorderDelay time.Duration // 0 means 1 ms
}

// path is the state of one direction.
type path struct {
	own  *Link // nil if the default applies
	line queue
	bad  bool // the state of Link.Burst
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
	return n.cut[w] || n.cut[way{from: w.from}] || n.cut[way{to: w.to}] || n.cut[way{}]
}

// headerSize returns how many bytes IP and UDP headers add to a datagram.
func headerSize(v6 bool) int {
	if v6 {
		return 40 + 8
	}
	return 20 + 8
}

// transmit passes d through the filter and over its link. d.Payload belongs to the network.
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
	if link.Burst.next(n.rng, &p.bad) {
		n.stats.Lost++
		return
	}
	fate := link.Draw(n.rng, d.Payload)
	if fate.Lost {
		n.stats.Lost++
		return
	}
	if fate.Corrupted {
		n.stats.Corrupted++
		if d.TCP() { // its checksum shows that
			return
		}
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

// queue returns when d has left the last queue on its path, or false if one is full.
func (n *Network) queue(p *path, link *Link, d *Datagram, now time.Time) (left time.Time, ok bool) {
	p.line.limit = Port{Bandwidth: link.Bandwidth, Queue: link.Queue, MarkAbove: link.MarkAbove}
	left, marked, ok := p.line.enter(d, now)
	if port := n.ports[d.Dst.Addr()]; ok && port != nil {
		var there bool
		left, there, ok = port.enter(d, left)
		marked = marked || there
	}
	if ok && chance(n.rng, link.Mark) {
		marked = d.mark() || marked
	}
	if marked {
		n.stats.Marked++
	}
	return left, ok
}

// arrive schedules the arrival of d at the endpoint that listens.
func (n *Network) arrive(d *Datagram, due time.Time) {
	n.sequence++
	at := moment{due, n.sequence}
	if d.TCP() {
		n.tcp.expect(flight{at, ends{d.Dst, d.Src}, *d.segment, d.Payload})
		return
	}
	e := n.endpoints[d.Dst]
	if e == nil {
		n.stats.Unbound++
		return
	}
	e.expect(arrival{at, d.Src, d.TrafficClass, d.Payload})
}
