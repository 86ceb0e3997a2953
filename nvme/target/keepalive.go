package target

import (
	"math"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// The keep-alive timer is traffic based (CTRATT.TBKAS): any command on any queue of the controller shows that the host
// is alive. Queues note when their last command arrived, so the timer costs nothing until it expires; then it checks
// when that was, and is either restarted for the rest of the time, or ends the controller.
//
// The timeout applies only while the controller is ready and not shut down ("Keep Alive Timer Activation"). Otherwise
// the host has more time, though not forever: it may have died.

// keepAliveUnit is KAS, the granularity of the timer.
const keepAliveUnit = 100 * time.Millisecond

// longestKATO is the longest time in whole units that fits in KATO.
const longestKATO = math.MaxUint32 / 100 * keepAliveUnit

// defaultKATO is the default of feature 0Fh on transports that require keep-alive of hosts.
const defaultKATO = 2 * time.Minute

// discoveryKATO bounds the life of a discovery controller whose host asks for no keep-alive.
const discoveryKATO = 2 * time.Minute

// notReadyTime is how long an association lasts at least while its controller isn't enabled ("Message-based Controller
// Initialization").
const notReadyTime = 2 * time.Minute

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
	c.startKeepAlive()
}

// startKeepAlive starts the timer anew, if there is a timeout. Called with mu held.
func (c *controller) startKeepAlive() {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.timer = nil
	if d := c.mayBeSilent(); d > 0 {
		c.due = time.Duration(c.t.Now()) + d
		c.timer = time.AfterFunc(d, c.keepAliveTimer)
	}
}

// mayBeSilent returns how long the host may send nothing; 0 if there is no limit. Called with mu held.
func (c *controller) mayBeSilent() time.Duration {
	if c.kato == 0 || c.live.Load() {
		return c.kato
	}
	return max(c.kato, notReadyTime)
}

func (c *controller) keepAlive() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kato
}

// keepAliveTimer runs when the timer expires.
func (c *controller) keepAliveTimer() {
	c.mu.Lock()
	limit := c.mayBeSilent()
	if c.dead || limit == 0 {
		c.mu.Unlock()
		return
	}
	now := time.Duration(c.t.Now())
	silent := now - c.lastSeen()
	if rest := keepAliveRest(silent, now-c.due, limit); rest > 0 {
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
		c.identity("silent", silent.Round(time.Millisecond), "limit", limit)...)
	c.fatal(ErrKeepAlive)
}

// lastSeen returns when the controller's last command arrived. Called with mu held.
func (c *controller) lastSeen() time.Duration {
	seen := c.admin.lastSeen()
	for _, q := range c.queues {
		seen = max(seen, q.lastSeen())
	}
	return time.Duration(seen)
}

// lastSeen returns when the last command of q arrived. A host that waits for its authentication to be computed, or for
// its turn to be, isn't silent.
func (q *Queue) lastSeen() int64 {
	if a := q.auth.Load(); a != nil && a.busy.Load() {
		return q.t.Now()
	}
	return q.seen.Load()
}

// silent reports whether the host has sent nothing for half the timeout, and for how much longer than that. A living one
// sends something that often, and one that was cut off doesn't give its connections up before that, unless it learns of
// the loss in another way.
func (c *controller) silent() (longer time.Duration, silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	longer = time.Duration(c.t.Now()) - c.lastSeen() - c.kato/2
	return longer, c.kato > 0 && longer >= 0
}

// postponed reports whether step is postponed until the host is heard of again, or its connection has ended. A command
// that has waited needs that: if the network was cut meanwhile, the host may have sent it again by another path, and
// then written something else to the same blocks, which it would undo.
//
// Looks become rarer the longer the host is silent: it may have thousands of commands.
func (r *Request) postponed(step func(*Request)) bool {
	e := &r.engine
	longer, silent := e.q.ctrl.silent()
	if !silent {
		return false
	}
	e.turn = false
	time.AfterFunc(min(max(longer/4, firstLook), rarestLook), func() { step(r) })
	return true
}

// keepAliveRest returns how long the host still has, if it has been silent for silent and the timer ran late by late; 0
// if its time is over.
//
// If the timer is very late, it was us who stood still: a stopped process, a suspended or starved machine. The same
// holds if the host's time was not over when the timer was due, but is now. What the host sent in the meantime lies
// unread in sockets, so it gets half the time again to be heard.
func keepAliveRest(silent, late, limit time.Duration) time.Duration {
	if silent < limit {
		return limit - silent
	}
	if late > limit/4 || silent-late < limit {
		return limit / 2
	}
	return 0
}

// keepAliveCommand executes Keep Alive. Only its arrival matters.
func (r *Request) keepAliveCommand() {
	if r.engine.q.ctrl.keepAlive() == 0 {
		r.fail(nvme.StatusKATOInvalid, noLoc)
		return
	}
	r.respond(nvme.StatusSuccess)
}
