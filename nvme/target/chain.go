package target

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// chain runs a command that takes several volume operations, one after the other. Operations that complete inline are
// run in a loop rather than by recursion, which could become deep. Between two operations the command can be aborted,
// and ends with its connection.
//
// One command may copy 64 MiB, or discard gigabytes in 256 ranges. If the volume is as fast as memory, so that all of it
// completes inline, the chain leaves the transport's goroutine after atOnce bytes, some 2 ms: those that share it wait.
type chain struct {
	turn atomic.Uint32
	// next prepares e.io (for e.ns) and returns true, or calls endChain and returns false.
	next    func(*Request) bool
	started bool
	ready   bool // next has prepared the operation, which may be postponed
	pos     int  // for next's own use
	end     int
	piece   *piece       // Compare, Copy
	table   []*Namespace // Flush of all
	copy    copyState    // Copy

	stop atomic.Pointer[chainStop]
}

const atOnce = 8 << 20

// chainStop is why a chain is to end early.
type chainStop struct {
	status nvme.Status
	abort  *Request // the Abort that waits for the end; nil if there is none
}

const (
	turnOpen uint32 = iota // the operation is submitted
	turnDone               // it completed before Submit returned
	turnLate               // Submit returned before it completed
)

// run starts a chain.
func (r *Request) run(end int, next func(*Request) bool) {
	c := &r.engine.chain
	c.next, c.started, c.ready, c.pos, c.end = next, false, false, 0, end
	r.engine.after = (*Request).chained
	r.engine.q.chains.add(r)
	r.drive()
}

func (r *Request) drive() {
	c, io := &r.engine.chain, &r.engine.io
	var inline int64 // bytes
	for !r.chainAborted() && (c.ready || c.next(r)) {
		c.ready = true
		harmless := !c.started || io.Op == blockdev.OpRead || io.Op == blockdev.OpFlush
		if !harmless && r.postponed((*Request).drive) {
			return // drive will continue
		}
		c.ready, c.started = false, true
		c.turn.Store(turnOpen)
		r.enter()
		r.toVolume()
		if c.turn.CompareAndSwap(turnOpen, turnLate) {
			return // chained will continue
		}
		if inline += io.Length; inline >= atOnce {
			r.engine.q.ctrl.sub.work.Go(r.drive)
			return
		}
	}
}

// chained is called when an operation has completed. Of it and drive, the one that comes second continues.
func (r *Request) chained() {
	if !r.engine.chain.turn.CompareAndSwap(turnOpen, turnDone) {
		r.drive()
	}
}

// chainAborted ends the chain if it is to be aborted, its namespace is being removed, or its connection is ending: its
// host continues by another connection, and a late operation would undo what the host writes there.
func (r *Request) chainAborted() bool {
	e := &r.engine
	st := nvme.StatusAbortSQDeleted
	stop := e.chain.stop.Load()
	switch {
	case stop != nil:
		st = stop.status
	case e.q.state.Load() == queueDown:
	case e.q.qid == 0 && !e.q.ctrl.live.Load(): // disabled, or shut down, which ends I/O queues or waits for them
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

// chains are the running chains of a queue, for Abort to find them.
type chains struct {
	mu  sync.Mutex
	all []*Request
}

func (c *chains) add(r *Request) {
	c.mu.Lock()
	c.all = append(c.all, r)
	c.mu.Unlock()
}

// remove forgets r, and returns why it was to end early, if it was.
func (c *chains) remove(r *Request) *chainStop {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.all, r)
	c.all = slices.Delete(c.all, i, i+1)
	return r.engine.chain.stop.Swap(nil)
}

// count returns how many there are.
func (c *chains) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// abort makes the chain of command cid end for an Abort, which is answered when the chain has ended; it returns false
// if there is none that can be aborted.
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

// stopAll ends every chain on a namespace with a status.
func (c *chains) stopAll(ns *Namespace, st nvme.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.all {
		if r.Cmd.NSID() == ns.nsid {
			r.engine.chain.stop.CompareAndSwap(nil, &chainStop{st, nil})
		}
	}
}
