package target

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// maxAborts is ACL + 1. Aborts that find nothing are answered at once, and each of the others
// waits for another command, so any number is fine.
const maxAborts = 4

// abort executes Abort. What can be found are commands that wait or take long: event requests,
// commands that wait for a namespace that somebody has alone, and those that take several
// operations of a volume (Compare, Verify, Copy, Dataset Management, Flush of all, Format).
// Everything else is with its volume or on its way out, and completes soon by itself.
func (r *Request) abort() {
	c := r.engine.q.ctrl
	sqid, cid := r.Cmd.AbortSQID(), r.Cmd.AbortCID()
	if sqid == 0 {
		if c.admin.chains.abort(cid, r) {
			return // it is answered with the end of the chain
		}
		r.abortWaiting(c.takeEventRequest(cid))
		return
	}
	q := c.queue(sqid)
	if q == nil {
		r.aborted(false)
		return
	}
	if q.chains.abort(cid, r) {
		return // it is answered with the end of the chain
	}
	for _, ns := range c.sub.all() {
		if found := ns.gate.unpark(q, cid); found != nil {
			r.abortWaiting(found)
			return
		}
	}
	r.aborted(false)
}

// abortWaiting answers a command that only waited, if there is one, and then the Abort.
func (r *Request) abortWaiting(found *Request) {
	if found != nil {
		found.respond(nvme.StatusAbortRequested)
	}
	r.aborted(found != nil)
}

// aborted answers Abort.
func (r *Request) aborted(done bool) {
	if !done {
		r.CQE.SetDW0(nvme.AbortNotDone)
	}
	r.respond(nvme.StatusSuccess)
}

// takeEventRequest takes an event request out of those that are held; nil where it isn't.
func (c *controller) takeEventRequest(cid uint16) *Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.events.held
	i := slices.IndexFunc(held, func(h *Request) bool { return h.Cmd.CID() == cid })
	if i < 0 {
		return nil
	}
	found := held[i]
	c.events.held = slices.Delete(held, i, i+1)
	return found
}

// queue finds an I/O queue; nil where there is none.
func (c *controller) queue(qid uint16) *Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queues[qid]
}

// abortAll ends the commands of the controller's host on a namespace that wait or take long.
func (c *controller) abortAll(ns *Namespace, st nvme.Status) {
	c.mu.Lock()
	queues := make([]*Queue, 0, len(c.queues))
	for _, q := range c.queues {
		queues = append(queues, q)
	}
	c.mu.Unlock()
	for _, q := range queues {
		q.chains.stopAll(ns, st)
		for _, r := range ns.gate.unparkAll(q) {
			r.respond(st)
		}
	}
}
