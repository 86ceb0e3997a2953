package tcp

import (
	"fmt"
	"time"
)

// asksFor records that the host is asked for data, and starts the watch over it.
func (c *targetConn) asksFor() {
	c.pulls.Add(1)
	c.progress.Add(1)
	if c.watching.CompareAndSwap(false, true) {
		c.watch.Reset(c.l.cfg.DataTimeout)
	}
}

// mostChecks is how many checks find the data of a command missing before the connection ends.
const mostChecks = 10

// checkProgress ends the connection of a host that has sent no data since the last check, although it was asked before
// that, or that hasn't completed the data of a command for very long. A host may be slow; but the data lies in memory
// until it is complete, and whatever needs the namespace to itself waits.
func (c *targetConn) checkProgress() {
	now := c.progress.Load()
	moved := now != c.before
	c.before = now
	switch {
	case c.ending.Load():
	case c.pulls.Load() == 0:
		c.watching.Store(false)
		if c.pulls.Load() > 0 && c.watching.CompareAndSwap(false, true) {
			c.watch.Reset(c.l.cfg.DataTimeout) // data was asked for meanwhile
		}
	case !moved:
		c.stalled("nothing came for %v of what was asked for", c.l.cfg.DataTimeout)
	case c.trickles():
		c.stalled("the data of a command hasn't come within %v", mostChecks*c.l.cfg.DataTimeout)
	default:
		c.watch.Reset(c.l.cfg.DataTimeout)
	}
}

func (c *targetConn) stalled(format string, d time.Duration) {
	c.Disconnect(&ConnError{Stage: "receive data", Peer: c.attr.Remote, Err: fmt.Errorf("%w: "+format, ErrStalled, d)})
}

// trickles counts a check for each command that waits for data, and reports whether one has had too many.
func (c *targetConn) trickles() (long bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.slots {
		if r.pulling.Load() != pullNone && r.checks.Add(1) >= mostChecks {
			long = true
		}
	}
	return long
}
