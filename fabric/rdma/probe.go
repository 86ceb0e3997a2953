package rdma

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// A host that dies without a word, and whose controller has no keep-alive timeout, would keep its
// connection for good: a target that has nothing to send to it never learns. So who was silent for
// probeAfter is sent an RDMA WRITE of no bytes, which needs no key (IBTA C9-88), leaves no trace in
// the host, and has to be acknowledged. Where it isn't, the queue pair's retries run out, and the
// connection ends as with every other failure.
//
// One timer of the listener looks at all connections, so silence lasts up to twice as long.
const probeAfter = time.Minute

// probeState is what a connection knows of its host's silence.
type probeState uint8

const (
	probeHeard  probeState = iota // something came since the last look
	probeSilent                   // nothing did
	probeDue                      // a probe is to be posted
	probePosted
)

// watch starts looking at connections, when there is the first of them. Called with mu held.
func (l *Listener) watch() {
	if len(l.conns) > 0 && !l.closed {
		l.prober.Reset(probeAfter)
	}
}

// probeAll probes every connection whose host was silent.
func (l *Listener) probeAll() {
	l.mu.Lock()
	conns := make([]*targetConn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.watch()
	l.mu.Unlock()
	for _, c := range conns {
		c.probe()
	}
}

// probe has a probe posted, where the host was silent since the last time.
func (c *targetConn) probe() {
	c.mu.Lock()
	switch {
	case c.dead != nil || c.ended || c.probing > probeSilent:
		c.mu.Unlock()
		return
	case c.probing == probeHeard:
		c.probing = probeSilent
		c.mu.Unlock()
		return
	}
	c.probing = probeDue
	if c.mayPost() {
		c.postAll(&c.own)
	} else {
		c.mu.Unlock()
	}
}

// takeProbe adds a probe that is due to the batch. Called with mu held.
func (c *targetConn) takeProbe() {
	if c.probing == probeDue && c.sqUsed < c.sqSize {
		c.probing = probePosted
		c.sqUsed++
		c.l.counters.Probes.Add(1)
		c.batch.send = append(c.batch.send, verbs.SendWR{WRID: wrID(kindProbe, 0), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled})
	}
}

// probed takes note that the host has answered.
func (c *targetConn) probed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = probeSilent
	c.sqUsed--
}
