package target

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// What CSTS says is over is over: a controller is disabled (RDY = 0) and shut down (SHST) when no command of its own
// that reaches volumes is under way any more, and ready when neither is one that its host had sent to a controller
// which ended. The host may send such commands again, and then write something else to the same blocks, which a write
// that came late would undo. Volumes answer in their own time, and hosts wait for as long as CAP.TO says and then try
// again.

const (
	// settleLook is how soon a controller looks again whether commands have ended, twice as late each time. To be told
	// instead would cost every command something.
	settleLook = 10 * time.Millisecond
	// settleRest is how rarely it looks at last. All hosts of a volume that hangs wait together.
	settleRest = 200 * time.Millisecond
	// settleTell is after how many looks, which take a second, the log says what a controller waits for. Hosts can't find
	// out, and volumes take less unless they hang.
	settleTell = 10
)

// settle has CSTS follow CC, at once or when the commands that have to end first have.
func (c *controller) settle() {
	var (
		left        int
		flush, late bool
	)
	c.t.mu.Lock()
	c.mu.Lock() // before the count: what CC let in until now is counted
	due := !c.dead && c.unsettled()
	if due {
		left = c.t.underWay(c)
	}
	c.t.mu.Unlock()
	switch {
	case left > 0:
		late = c.lookAgain()
	case due:
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

// lookAgain has settle called once more, and says whether that has gone on for so long that it is to be told. Called
// with mu held.
func (c *controller) lookAgain() (late bool) {
	pause := settleRest
	if c.looks < settleTell {
		pause = min(settleLook<<c.looks, settleRest)
	}
	if c.look == nil {
		c.look = time.AfterFunc(pause, c.settle)
	} else {
		c.look.Reset(pause)
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

// underWay counts the commands that c has to wait for: its own, and where it is to become ready what is left of
// controllers of its host that have ended. Called with the mu of both held.
func (t *Target) underWay(c *controller) (n int) {
	enabling := c.cc.Enabled() && !c.csts.Ready()
	for q := range t.queues {
		switch {
		case q.sq.Load() == 0: // not connected yet; q.ctrl belongs to Connect
		case q.ctrl == c, enabling && q.ctrl.sub == c.sub && q.ctrl.host() == c.host() && q.ended():
			n += q.reaching()
		}
	}
	return n
}

// ended says whether the connection of a queue is ending, or all of its controller are.
func (q *Queue) ended() bool { return q.state.Load() == queueDown || q.ctrl.ended() }

// reaching is the number of commands of a queue under way that reach volumes. Of an admin queue it's Format alone.
func (q *Queue) reaching() int {
	if q.qid != 0 {
		return q.underWay()
	}
	return q.chains.count()
}
