package host

import (
	"sync"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// maxAborts bounds the Abort commands under way, below every controller's Abort command limit
// that is met in practice (ACL 3: four).
const maxAborts = 4

// aborter sends Abort commands in the background. There is a fixed number of requests for it;
// while all are under way no further command is aborted, and its second expiry ends the
// controller.
type aborter struct {
	mu   sync.Mutex
	reqs [maxAborts]Request
	busy [maxAborts]bool
}

func (a *aborter) abort(c *Controller, qid, cid uint16) {
	limit := min(maxAborts, int(c.identity.ACL)+1)
	a.mu.Lock()
	i := 0
	for i < limit && a.busy[i] {
		i++
	}
	if i == limit {
		a.mu.Unlock()
		return
	}
	a.busy[i] = true
	a.mu.Unlock()
	r := &a.reqs[i]
	r.Cmd.SetAbort(qid, cid)
	r.Done = func(r *Request) {
		if err := r.Check(); err != nil || r.CQE.DW0()&nvme.AbortNotDone != 0 {
			c.cfg.Log.Debug("abort had no effect", c.logKeys("qid", qid, "cid", cid, "err", err)...)
		}
		a.mu.Lock()
		a.busy[i] = false
		a.mu.Unlock()
	}
	c.counters.Aborts.Add(1)
	c.admin.submitFirst(r)
}
