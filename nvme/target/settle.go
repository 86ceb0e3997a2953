package target

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// What CSTS says is over is over: a controller is disabled (RDY = 0), ready again, and shut down (SHST), when no command
// of its own that reaches volumes is under way any more, and shut down when neither is one that its host had left behind
// when it became ready (hold). Volumes answer in their own time, and hosts wait for as long as CAP.TO says and then try
// again, with another controller at last.

// settle has CSTS follow CC, at once or when the commands that have to end first have.
func (c *controller) settle() {
	var (
		left        []*Queue
		flush, late bool
	)
	c.t.mu.Lock()
	c.mu.Lock() // before the count: what CC let in until now is counted
	due := !c.dead && c.unsettled()
	if due {
		left = c.t.underWay(c)
	}
	if due && len(left) == 0 && c.enabling() {
		c.hold(c.t.leftBehind(c))
	}
	c.t.mu.Unlock()
	switch {
	case len(left) > 0:
		late = c.looks.again(c.settle)
	case due:
		flush = c.settled()
	}
	c.mu.Unlock()
	switch {
	case flush:
		c.flushCaches()
	case late:
		at, _, _ := whereabouts(left)
		elsewhere := func(ns *Namespace) bool { return !at.has(ns.nsid) }
		c.tellLeft("a controller waits: commands", left, nsids(slices.DeleteFunc(c.sub.all(), elsewhere)))
	}
}

// unsettled says whether CSTS is to change. Called with mu held.
func (c *controller) unsettled() bool {
	return c.cc.Enabled() != c.csts.Ready() && c.csts&nvme.CSTSFatal == 0 || c.shuttingDown()
}

// enabling says whether the controller is to become ready. Called with mu held.
func (c *controller) enabling() bool { return c.cc.Enabled() && !c.csts.Ready() }

// shuttingDown says whether a shutdown has still to begin. Called with mu held.
func (c *controller) shuttingDown() bool {
	return c.csts.Shutdown() == nvme.CSTSShutdownOccurs && !c.flushing
}

// settled brings CSTS up to date, and says whether the caches are to be flushed now. Called with mu held.
func (c *controller) settled() (flush bool) {
	c.looks.n = 0
	if c.csts&nvme.CSTSFatal == 0 {
		c.csts &^= nvme.CSTSReady
		if c.cc.Enabled() {
			c.csts |= nvme.CSTSReady
		}
		c.goLive()
	}
	flush = c.shuttingDown()
	c.flushing = c.flushing || flush
	return flush
}

// goLive has commands executed where the controller is ready and not shut down. Called with mu held.
func (c *controller) goLive() {
	c.live.Store(c.cc.Enabled() && c.csts.Ready() && c.csts.Shutdown() == nvme.CSTSShutdownNone && !c.dead)
}

// underWay finds the queues with commands that c has to wait for. Called with the mu of both held.
func (t *Target) underWay(c *controller) (all []*Queue) {
	if c.shuttingDown() {
		_, all, _ = whereabouts(c.left.queues)
	}
	for q := range t.queues {
		if q.sq.Load() != 0 && q.ctrl == c && q.reaching() > 0 { // until 0 is past q.ctrl belongs to Connect
			all = append(all, q)
		}
	}
	return all
}

// ended says whether the connection of a queue is ending, or all of its controller are.
func (q *Queue) ended() bool { return q.state.Load() == queueDown || q.ctrl.ended() }

// reaching is the number of commands of a queue under way that reach volumes. Of an admin queue it's Format and write
// protection alone.
func (q *Queue) reaching() int {
	if q.qid != 0 {
		return q.underWay()
	}
	return q.chains.count()
}
