package host

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// keepAlive proves to each side that the other is alive. It counts in quarters of KATO: a connection on which
// nothing arrived in three whole quarters, with a Keep Alive unanswered for two, has been silent for less than KATO
// and is given up, so that the loss is known within KATO. Counting intervals rather than time spares a connection
// whose own host was suspended.
type keepAlive struct {
	req         Request
	outstanding atomic.Bool
	seen        uint64 // completions at the last quarter
	sent        uint64 // commands at the last quarter
	silent      int    // quarters without a completion
	since       int    // quarters since a Keep Alive was sent
}

const (
	quarters    = 4
	silentLimit = 3
	sentLimit   = 2
)

func (c *Controller) startKeepAlive(context.Context) error {
	if c.cfg.KATO == 0 {
		return nil
	}
	c.run(c.keepAlive)
	return nil
}

func (c *Controller) keepAlive() {
	k := &c.alive
	k.since = sentLimit // the first quarter sends one
	ticker := time.NewTicker(c.cfg.KATO / quarters)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.done:
			return
		}
		if !k.quarter(c) {
			c.fail(c.lost(ErrKeepAlive))
			return
		}
	}
}

// quarter is one step; false ends the controller.
func (k *keepAlive) quarter(c *Controller) bool {
	sent, seen := c.traffic()
	k.silent++
	if seen != k.seen {
		k.silent = 0
	}
	idle := sent == k.sent
	k.sent, k.seen = sent, seen
	k.since++
	if k.outstanding.Load() {
		return k.silent < silentLimit || k.since < sentLimit
	}
	// With traffic based keep alive, any command that arrives restarts the controller's timer. A completion alone
	// doesn't say when its command arrived.
	traffic := c.identity.CTRATT&nvme.CTRATTTBKAS != 0 && !idle
	if (k.since < sentLimit || traffic) && k.silent == 0 {
		return true
	}
	k.since = 0
	k.outstanding.Store(true)
	k.req.Cmd.SetKeepAlive()
	k.req.Done = func(r *Request) {
		if r.Err == nil {
			if err := r.Check(); err != nil {
				c.counters.KeepAliveFailures.Add(1)
				c.cfg.Log.Warn("keep alive refused", c.logKeys("err", err)...)
			} else {
				c.counters.KeepAlives.Add(1)
			}
		}
		k.outstanding.Store(false)
	}
	c.admin.submitUrgent(&k.req)
	return true
}

// traffic returns the number of commands sent on all queues, and of responses.
func (c *Controller) traffic() (sent, seen uint64) {
	c.mu.Lock()
	queues := c.queues
	c.mu.Unlock()
	for _, q := range queues {
		sent += q.counters.Submitted.Load()
		seen += q.counters.Completed.Load()
	}
	return sent, seen
}
