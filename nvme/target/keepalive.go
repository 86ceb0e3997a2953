package target

import (
	"math"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// The keep-alive timer is traffic based (CTRATT.TBKAS): any command on any queue of the
// controller shows that the host lives. Queues note when their last command arrived, so the
// timer has nothing to do until it runs out; then it looks when that was, and either starts
// anew for the rest, or ends the controller.

// keepAliveUnit is KAS, the granularity of the timer.
const keepAliveUnit = 100 * time.Millisecond

// longestKATO is the longest time in whole units that KATO can say.
const longestKATO = math.MaxUint32 / 100 * keepAliveUnit

// defaultKATO is the default of feature 0Fh where the transport is one for which hosts are to keep alive.
const defaultKATO = 2 * time.Minute

// discoveryKATO bounds the life of a discovery controller whose host asks for no keep-alive.
const discoveryKATO = 2 * time.Minute

// setKATO sets the keep-alive timeout, rounded up to keepAliveUnit; 0 turns it off.
func (c *controller) setKATO(d time.Duration) {
	if over := d % keepAliveUnit; over != 0 {
		d = min(d+keepAliveUnit-over, longestKATO)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	c.kato = d
	if c.timer != nil {
		c.timer.Stop()
	}
	c.timer = nil
	if d > 0 {
		c.due = time.Duration(c.t.Now()) + d
		c.timer = time.AfterFunc(d, c.keepAliveTimer)
	}
}

func (c *controller) keepAlive() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kato
}

// keepAliveTimer runs when the timer has run out.
func (c *controller) keepAliveTimer() {
	c.mu.Lock()
	if c.dead || c.kato == 0 {
		c.mu.Unlock()
		return
	}
	seen := c.admin.lastSeen()
	for _, q := range c.queues {
		seen = max(seen, q.lastSeen())
	}
	now := time.Duration(c.t.Now())
	silent := now - time.Duration(seen)
	kato := c.kato
	if rest := keepAliveRest(silent, now-c.due, kato); rest > 0 {
		c.due = now + rest
		c.timer.Reset(rest)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.t.mu.Lock()
	c.t.totals(c.attr.Transport).keepAliveTimeouts++
	c.t.mu.Unlock()
	c.t.log.Warn("host is silent: its controller ends",
		c.identity("silent", silent.Round(time.Millisecond), "kato", kato)...)
	c.fatal(ErrKeepAlive)
}

// keepAliveRest is how long the host still has, when it has been silent for so long and the
// timer has run late by that much; 0 when its time is over.
//
// A timer that is late by much tells that it was us who stood still: a stopped process, a
// suspended or starved machine. So does a host whose time was not over when the timer was due, and is
// now. What it sent in the meantime lies unread in sockets, so it gets half the timeout to be heard.
func keepAliveRest(silent, late, kato time.Duration) time.Duration {
	if silent < kato {
		return kato - silent
	}
	if late > kato/4 || silent-late < kato {
		return kato / 2
	}
	return 0
}

// keepAliveCommand executes Keep Alive. That it arrived is all that matters.
func (r *Request) keepAliveCommand() {
	if r.engine.q.ctrl.keepAlive() == 0 {
		r.fail(nvme.StatusKATOInvalid, noLoc)
		return
	}
	r.respond(nvme.StatusSuccess)
}
