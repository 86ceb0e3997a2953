package target

import (
	"maps"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// maxAborts is ACL + 1. Aborts that find nothing are answered at once, and each of the others waits for another
// command, so any number would do.
const maxAborts = 4

// abort executes Abort. It can find commands that wait or take long: event requests, commands that wait for a namespace
// that an owner has alone, or to have it alone themselves, and those that take several volume operations (Compare,
// Verify, Copy, Dataset Management, Flush of all, Format) or flush the volume before they have done their work (write
// protection). Everything else is with its volume or about to be answered, and completes soon by itself.
func (r *Request) abort() {
	c := r.engine.q.ctrl
	q, cid := c.admin, r.Cmd.AbortCID()
	if sqid := r.Cmd.AbortSQID(); sqid != 0 {
		q = c.queue(sqid)
	}
	switch {
	case q == nil:
		r.aborted(false)
	case q.chains.abort(cid, r): // answered when the chain ends
	case q == c.admin && r.abortFound(c.takeEventRequest(cid)):
	default:
		for _, ns := range c.sub.all() {
			parked := ns.gate.unpark(func(w *Request) bool { return q.has(w) && w.Cmd.CID() == cid })
			if r.abortFound(append(parked, ns.withdraw(waitsAs(q, cid))...)) {
				return
			}
		}
		r.aborted(false)
	}
}

// waitsAs matches the command cid of a queue that waits to have a namespace alone, by itself or as one of a pair. It
// doesn't match Reservation Acquire, which has done its work.
func waitsAs(q *Queue, cid uint16) func(*Request) bool {
	return func(w *Request) bool {
		mate := w.engine.mate
		return q.has(w) && w.Cmd.Opcode() != nvme.OpResvAcquire &&
			(w.Cmd.CID() == cid || mate != nil && mate.Cmd.CID() == cid)
	}
}

// abortFound answers a command that only waited, for a pair both halves, if there is one, and then the Abort.
func (r *Request) abortFound(all []*Request) bool {
	for _, w := range all {
		st := nvme.StatusAbortRequested
		if mate := w.engine.mate; mate != nil {
			compared := st
			if mate.Cmd.CID() != r.Cmd.AbortCID() {
				compared = nvme.StatusAbortFailedFused
			} else {
				st = nvme.StatusAbortFailedFused
			}
			w.endCompare(compared)
		}
		w.respond(st)
	}
	if len(all) > 0 {
		r.aborted(true)
	}
	return len(all) > 0
}

// aborted answers Abort.
func (r *Request) aborted(done bool) {
	if !done {
		r.CQE.SetDW0(nvme.AbortNotDone)
	}
	r.respond(nvme.StatusSuccess)
}

// takeEventRequest removes an event request from those that are held, if it is.
func (c *controller) takeEventRequest(cid uint16) (found []*Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &c.events
	if i := slices.IndexFunc(e.held, func(h *Request) bool { return h.Cmd.CID() == cid }); i >= 0 {
		found = []*Request{e.held[i]}
		e.held = slices.Delete(e.held, i, i+1)
	}
	return found
}

// queue finds an I/O queue; nil if there is none.
func (c *controller) queue(qid uint16) *Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queues[qid]
}

// ioQueues returns the controller's I/O queues.
func (c *controller) ioQueues() []*Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.queues))
}

// abortAll ends the controller's commands on a namespace that wait or take long.
func (c *controller) abortAll(ns *Namespace, st nvme.Status) {
	for _, q := range c.ioQueues() {
		q.chains.stopAll(ns, st)
		for _, r := range ns.gate.unpark(q.has) {
			r.respond(st)
		}
	}
}
