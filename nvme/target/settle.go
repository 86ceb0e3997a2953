package target

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// When CSTS says that something is over, it is over: a controller is disabled (RDY = 0), ready again, or shut down
// (SHST) only when none of its own commands that reach volumes is under way any more, and shut down only when none that
// its host had left behind when it became ready (hold) is, either. Volumes answer in their own time; hosts wait for as
// long as CAP.TO says, then try again, and in the end with another controller.

// settle makes CSTS follow CC, at once or when the commands that have to end first have ended.
func (c *controller) settle() {
	var (
		left                 []*Queue
		enabled, flush, late bool
	)
	c.t.mu.Lock()
	c.mu.Lock() // before the count, so that commands that CC let in until now are counted
	due := !c.dead && c.unsettled()
	if due {
		left = c.t.underWay(c)
	}
	if enabled = due && len(left) == 0 && c.enabling(); enabled {
		c.unhold()
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
	if enabled {
		c.lookBehind()
	}
	switch {
	case flush:
		c.flushCaches()
	case late:
		at, _, _ := whereabouts(left)
		elsewhere := func(ns *Namespace) bool { return !at.has(ns.nsid) }
		c.tellLeft("a controller waits: commands", left, nsids(slices.DeleteFunc(c.sub.all(), elsewhere)))
	}
}

// unsettled reports whether CSTS is to change. Called with mu held.
func (c *controller) unsettled() bool {
	return c.cc.Enabled() != c.csts.Ready() && c.csts&nvme.CSTSFatal == 0 || c.shuttingDown()
}

// enabling reports whether the controller is to become ready. Called with mu held.
func (c *controller) enabling() bool { return c.cc.Enabled() && !c.csts.Ready() }

// shuttingDown reports whether a shutdown has yet to begin. Called with mu held.
func (c *controller) shuttingDown() bool {
	return c.csts.Shutdown() == nvme.CSTSShutdownOccurs && !c.flushing
}

// settled brings CSTS up to date, and reports whether the caches are to be flushed now. Called with mu held.
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

// goLive lets commands be executed, and the keep-alive timer run, if the controller is ready, and neither shut down nor
// fatal. Called with mu held.
func (c *controller) goLive() {
	live := c.cc.Enabled() && c.csts == nvme.CSTSReady && !c.dead
	if !c.live.Swap(live) && live {
		c.startKeepAlive()
	}
}

// underWay finds the queues with commands that c has to wait for. Called with the mu of both held.
func (t *Target) underWay(c *controller) (all []*Queue) {
	if c.shuttingDown() {
		_, all, _ = whereabouts(c.left.queues)
	}
	for q := range t.queues {
		if q.sq.Load() != 0 && q.ctrl == c && q.reaching() > 0 { // while sq is 0, q.ctrl belongs to Connect
			all = append(all, q)
		}
	}
	return all
}

// ended reports whether the connection of a queue is ending, or all connections of its controller are.
func (q *Queue) ended() bool { return q.state.Load() == queueDown || q.ctrl.ended() }

// reaching returns the number of commands of a queue that are under way and reach volumes. On an admin queue only
// Format and write protection do.
func (q *Queue) reaching() int {
	if q.qid != 0 {
		return q.underWay()
	}
	return q.chains.count()
}
