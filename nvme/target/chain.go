package target

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// chain runs a command that takes several operations of a volume, one after the other.
// Operations that complete inline are taken in a loop rather than in a recursion, which could
// become deep. Between two operations the command can be aborted, and ends with its connection.
type chain struct {
	turn atomic.Uint32
	// next prepares e.io (for e.ns) and returns true, or calls endChain and returns false.
	next    func(*Request) bool
	started bool
	pos     int // of next's own
	end     int
	piece   *piece       // Compare, Copy
	table   []*Namespace // Flush of all
	copy    copyState    // Copy

	stop atomic.Pointer[chainStop]
}

// chainStop is why a chain is to end before its time.
type chainStop struct {
	status nvme.Status
	abort  *Request // the Abort that waits for the end; nil for none
}

const (
	turnOpen uint32 = iota // the operation is submitted
	turnDone               // it completed before Submit returned
	turnLate               // Submit returned before it completed
)

// run starts a chain.
func (r *Request) run(end int, next func(*Request) bool) {
	c := &r.engine.chain
	c.next, c.started, c.pos, c.end = next, false, 0, end
	r.engine.after = (*Request).chained
	r.engine.q.chains.add(r)
	r.drive()
}

func (r *Request) drive() {
	e := &r.engine
	for !r.chainAborted() && e.chain.next(r) {
		e.chain.started = true
		e.chain.turn.Store(turnOpen)
		r.enter()
		r.toVolume()
		if e.chain.turn.CompareAndSwap(turnOpen, turnLate) {
			return // chained goes on
		}
	}
}

// chained is told that an operation completed. Whoever comes second, it or drive, goes on.
func (r *Request) chained() {
	if !r.engine.chain.turn.CompareAndSwap(turnOpen, turnDone) {
		r.drive()
	}
}

// chainAborted ends the chain where somebody wants it aborted, or removes its namespace, or its connection is ending:
// its host goes on by another one, and what came late would undo what it writes there.
func (r *Request) chainAborted() bool {
	e := &r.engine
	st := nvme.StatusAbortSQDeleted
	stop := e.chain.stop.Load()
	switch {
	case stop != nil:
		st = stop.status
	case e.q.state.Load() == queueDown:
	case e.q.qid == 0 && !e.q.ctrl.live.Load(): // disabled, or shut down; the others' queues end, or it waits for them
		st = nvme.StatusAbortRequested
	case e.chain.table == nil && e.ns != nil && e.ns.state.Load()&nsRemoved != 0:
		st = nvme.StatusInvalidNamespace | nvme.StatusDNR
	default:
		return false
	}
	r.endChain(st)
	return true
}

// endChain ends the command with a status, and then the Abort that waits for it.
func (r *Request) endChain(st nvme.Status) {
	e := &r.engine
	c := &e.chain
	if p := c.piece; p != nil {
		c.piece = nil
		p.free()
	}
	c.table = nil
	stop := e.q.chains.remove(r)
	if done := e.chainDone; done != nil {
		e.chainDone = nil
		done(r, st)
	} else {
		r.respond(st)
	}
	if stop != nil && stop.abort != nil {
		stop.abort.aborted(st == stop.status)
	}
}

// chains are the chains of a queue that are under way, for Abort to find them.
type chains struct {
	mu  sync.Mutex
	all []*Request
}

func (c *chains) add(r *Request) {
	c.mu.Lock()
	c.all = append(c.all, r)
	c.mu.Unlock()
}

// remove forgets r, and returns why it was to end, if it was.
func (c *chains) remove(r *Request) *chainStop {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.all, r)
	c.all = slices.Delete(c.all, i, i+1)
	return r.engine.chain.stop.Swap(nil)
}

// count is how many there are.
func (c *chains) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// abort has the chain of command cid aborted for an Abort, which is answered when the chain
// has ended; false where there is none that could be.
func (c *chains) abort(cid uint16, aborter *Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.all {
		if r.Cmd.CID() == cid {
			return r.engine.chain.stop.CompareAndSwap(nil, &chainStop{nvme.StatusAbortRequested, aborter})
		}
	}
	return false
}

// stopAll has every chain on a namespace ended with a status.
func (c *chains) stopAll(ns *Namespace, st nvme.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.all {
		if r.Cmd.NSID() == ns.nsid {
			r.engine.chain.stop.CompareAndSwap(nil, &chainStop{st, nil})
		}
	}
}
