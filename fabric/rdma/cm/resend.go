package cm

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
)

// sendPending sends m, and retransmits it at the times early within the first interval, and then at every interval
// until disarm.
func (c *conn) sendPending(now time.Time, tid uint64, m mad.Message, early []time.Duration, fx *effects) {
	c.pending, c.pendingTID = m, tid
	c.first, c.early = now, early
	c.tries, c.left = 1, c.retries
	c.waitEarly(now)
	fx.send(tid, m)
}

// waitEarly waits for the next of the early times, and after the last one for the end of the first interval.
func (c *conn) waitEarly(now time.Time) {
	for len(c.early) > 0 && !c.first.Add(c.early[0]).After(now) {
		c.early = c.early[1:]
	}
	if len(c.early) > 0 && c.early[0] < c.interval {
		c.wait(c.first.Add(c.early[0]))
		return
	}
	c.early = nil
	c.wait(c.first.Add(c.interval))
}

// wait sets the deadline, but no later than the end of the attempt.
func (c *conn) wait(until time.Time) {
	c.deadline = until
	if !c.until.IsZero() && c.deadline.After(c.until) {
		c.deadline = c.until
	}
}

// resend sends the pending message again; it returns false when the retries or the time are used up.
func (c *conn) resend(now time.Time, fx *effects) bool {
	switch {
	case !c.until.IsZero() && !now.Before(c.until):
		return false
	case len(c.early) > 0:
		c.waitEarly(now)
	case c.left == 0:
		return false
	default:
		c.left--
		c.wait(now.Add(c.interval))
	}
	c.tries++
	fx.sends = append(fx.sends, outgoing{c.pendingTID, c.pending, true})
	return true
}

func (c *conn) disarm() {
	c.pending = nil
	c.deadline, c.until = time.Time{}, time.Time{}
}
