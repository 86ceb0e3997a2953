package host

import (
	"sync"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// maxAborts bounds the outstanding Abort commands, within the Abort Command Limit that controllers have in practice
// (ACL 3: four).
const maxAborts = 4

// aborter sends Abort commands in the background. It has a fixed number of requests; while all of them are in use,
// further commands wait to be aborted.
type aborter struct {
	mu      sync.Mutex
	reqs    [maxAborts]Request
	busy    [maxAborts]bool
	waiting []victim
}

// victim is a command to be aborted.
type victim struct {
	q   *Queue
	cid uint16
}

func (a *aborter) abort(c *Controller, v victim) {
	limit := min(maxAborts, int(c.identity.ACL)+1)
	a.mu.Lock()
	i := 0
	for i < limit && a.busy[i] {
		i++
	}
	if i == limit {
		a.waiting = append(a.waiting, v)
		a.mu.Unlock()
		return
	}
	a.busy[i] = true
	a.mu.Unlock()
	a.send(c, i, v)
}

// send sends the i-th Abort command and afterwards, with the same request, those for waiting victims.
func (a *aborter) send(c *Controller, i int, v victim) {
	r := &a.reqs[i]
	r.Cmd.SetAbort(v.q.attr.QID, v.cid)
	r.Done = func(r *Request) {
		if err := r.Check(); err != nil || r.CQE.DW0()&nvme.AbortNotDone != 0 {
			c.cfg.Log.Debug("abort had no effect", c.logKeys("qid", v.q.attr.QID, "cid", v.cid, "err", err)...)
		}
		if next, ok := a.next(i, r.Err == nil); ok {
			a.send(c, i, next)
		}
	}
	c.counters.Aborts.Add(1)
	c.admin.submitUrgent(r)
}

// next returns what the i-th request has to abort next, or false if the request is now free. If the controller is
// gone, nothing has to be aborted any more.
func (a *aborter) next(i int, connected bool) (victim, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for connected && len(a.waiting) > 0 {
		v := a.waiting[0]
		a.waiting = a.waiting[1:]
		if v.q.outstanding(v.cid) {
			return v, true
		}
	}
	a.waiting = nil
	a.busy[i] = false
	return victim{}, false
}
