package tcp

import "fmt"

// asksFor notes that the host is asked for data, and begins the watch over it.
func (c *targetConn) asksFor() {
	c.pulls.Add(1)
	c.progress.Add(1)
	if c.watching.CompareAndSwap(false, true) {
		c.watch.Reset(c.l.cfg.DataTimeout)
	}
}

// checkProgress ends the connection of a host that has brought nothing since the last check, although it
// was asked before that. A host may be slow; but what it is asked for lies in memory until it is
// there.
func (c *targetConn) checkProgress() {
	now := c.progress.Load()
	moved := now != c.before
	c.before = now
	switch {
	case c.ending.Load():
	case c.pulls.Load() == 0:
		c.watching.Store(false)
		if c.pulls.Load() > 0 && c.watching.CompareAndSwap(false, true) {
			c.watch.Reset(c.l.cfg.DataTimeout) // asked for meanwhile
		}
	case moved:
		c.watch.Reset(c.l.cfg.DataTimeout)
	default:
		c.Disconnect(&ConnError{Stage: "receive data", Peer: c.attr.Remote,
			Err: fmt.Errorf("%w: nothing came for %v of what was asked for", ErrStalled, c.l.cfg.DataTimeout)})
	}
}
