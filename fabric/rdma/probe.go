package rdma

import (
	"maps"
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// A host that dies silently, and whose controller has no keep-alive timeout, would keep its connection forever: a
// target that has nothing to send to it never finds out. So a host that was silent for probeAfter is sent an RDMA WRITE
// of zero bytes, which needs no key (IBTA C9-88), leaves no trace in the host, and has to be acknowledged (with iWARP
// by TCP). If it isn't, the retries run out, and the connection ends like after every other failure.
//
// One timer of the listener checks all connections, so a silence may last up to twice as long before it is noticed.
const probeAfter = time.Minute

// probeState is what a connection knows about its host's silence.
type probeState uint8

const (
	probeHeard  probeState = iota // something arrived since the last check
	probeSilent                   // nothing did
	probeDue                      // a probe is to be posted
	probePosted
)

// watch starts checking connections, if there are any. Called with mu held.
func (l *Listener) watch() {
	if len(l.conns) > 0 && !l.closed {
		l.prober.Reset(probeAfter)
	}
}

// probeAll probes every connection whose host was silent.
func (l *Listener) probeAll() {
	l.mu.Lock()
	conns := slices.Collect(maps.Keys(l.conns))
	l.watch()
	l.mu.Unlock()
	for _, c := range conns {
		c.probe()
	}
}

// probe posts a probe, if the host was silent since the last time.
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
	c.post()
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

// probed records that the host has answered.
func (c *targetConn) probed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = probeSilent
	c.sqUsed--
}
