package target

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// What CSTS says is over is over: a controller is disabled (RDY = 0) and shut down (SHST) when no command of its I/O queues
// is under way any more, and ready when neither is one that its host had sent to a controller which ended. The host may
// send such commands again, and then write something else to the same blocks, which a write that came late would undo.
// Volumes answer in their own time, and hosts wait for as long as CAP.TO says and then try again.

// settleLook is how often a controller looks whether commands have ended. To be told instead would cost every command
// something.
const settleLook = 10 * time.Millisecond

// settleTell is after how many looks the log says what a controller waits for, which hosts can't find out: a second is more
// than volumes take, unless they hang.
const settleTell = int(time.Second / settleLook)

// settle has CSTS follow CC, at once or when the commands that have to end first have.
func (c *controller) settle() {
	c.t.mu.Lock()
	left := c.t.underWay(c)
	c.mu.Lock()
	c.t.mu.Unlock()
	var flush, late bool
	switch {
	case c.dead || !c.unsettled():
	case left > 0:
		late = c.lookAgain()
	default:
		flush = c.settled()
	}
	c.mu.Unlock()
	switch {
	case flush:
		c.flushCaches()
	case late:
		c.tellSettling(left)
	}
}

// lookAgain has settle called once more, and says whether that has gone on for so long that it is to be told. Called with mu
// held.
func (c *controller) lookAgain() (late bool) {
	if c.look == nil {
		c.look = time.AfterFunc(settleLook, c.settle)
	} else {
		c.look.Reset(settleLook)
	}
	c.looks++
	return c.looks == settleTell
}

// tellSettling logs what the controller waits for. Of the namespaces that are in use one is at fault, or several.
func (c *controller) tellSettling(commands int) {
	var used []uint32
	for _, ns := range c.sub.all() {
		if ns.users() > 0 {
			used = append(used, ns.nsid)
		}
	}
	c.t.log.Warn("a controller waits: commands that its host sent before are still with a volume",
		c.identity("commands", commands, "namespaces_in_use", used,
			"remedy", "see to the volume that hangs; the host can't use the subsystem until it answers")...)
}

// unsettled says whether CSTS is to change. Called with mu held.
func (c *controller) unsettled() bool {
	return c.cc.Enabled() != c.csts.Ready() && c.csts&nvme.CSTSFatal == 0 || c.shuttingDown()
}

// shuttingDown says whether a shutdown has still to begin. Called with mu held.
func (c *controller) shuttingDown() bool {
	return c.csts.Shutdown() == nvme.CSTSShutdownOccurs && !c.flushing
}

// settled brings CSTS up to date, and says whether the caches are to be flushed now. Called with mu held.
func (c *controller) settled() (flush bool) {
	c.looks = 0
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

// underWay counts the commands that c has to wait for: those of its I/O queues, and what is left of controllers of its host
// that have ended, for those may be on their way to a volume. Called with mu held.
func (t *Target) underWay(c *controller) (n int) {
	for q := range t.queues {
		switch {
		case q.sq.Load() == 0: // not connected yet; q.ctrl belongs to Connect
		case q.ctrl == c && q.qid != 0, q.ctrl != c && q.state.Load() == queueDown && q.ctrl.sub == c.sub && q.ctrl.host() == c.host():
			n += q.underWay()
		}
	}
	return n
}
