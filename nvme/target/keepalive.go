package target

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// The keep-alive timer is traffic based (CTRATT.TBKAS): any command on any queue of the
// controller shows that the host lives. Queues note when their last command arrived, so the
// timer has nothing to do until it runs out; then it looks when that was, and either starts
// anew for the rest, or ends the controller.

// keepAliveUnit is KAS, the granularity of the timer.
const keepAliveUnit = 100 * time.Millisecond

// discoveryKATO bounds the life of a discovery controller whose host asks for no keep-alive.
const discoveryKATO = 2 * time.Minute

// setKATO sets the keep-alive timeout, rounded up to keepAliveUnit; 0 turns it off.
func (c *Controller) setKATO(d time.Duration) {
	if over := d % keepAliveUnit; over != 0 {
		d += keepAliveUnit - over
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
		c.timer = time.AfterFunc(d, c.keepAliveTimer)
	}
}

func (c *Controller) keepAlive() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kato
}

// keepAliveTimer runs when the timer has run out.
func (c *Controller) keepAliveTimer() {
	c.mu.Lock()
	if c.dead || c.kato == 0 {
		c.mu.Unlock()
		return
	}
	seen := c.admin.seen.Load()
	for _, q := range c.queues {
		seen = max(seen, q.seen.Load())
	}
	silent := time.Duration(c.t.now() - seen)
	kato := c.kato
	if rest := kato - silent; rest > 0 {
		c.timer.Reset(rest)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.t.mu.Lock()
	c.t.totals(c.attr.Transport).keepAliveTimeouts++
	c.t.mu.Unlock()
	c.t.log.warn("host is silent: its controller ends", "subsystem", c.sub.nqn, "cntlid", c.id,
		"host", c.hostNQN, "silent", silent.Round(time.Millisecond), "kato", kato)
	c.fatal(ErrKeepAlive)
}

// keepAliveCommand executes Keep Alive. That it arrived is all that matters.
func (r *Request) keepAliveCommand() {
	if r.engine.q.ctrl.keepAlive() == 0 {
		r.fail(nvme.StatusKATOInvalid, noLoc)
		return
	}
	r.respond(nvme.StatusSuccess)
}
