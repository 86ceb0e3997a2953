package multipath

import (
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// way is how one connected controller leads to one namespace. When the controller is lost the way is dead, and the
// next controller of the path gets a new way.
type way struct {
	ns     *space
	path   *path
	ctrl   *host.Controller
	queues []*host.Queue
	err    error // why it doesn't lead there after all
	turn   atomic.Uint32
	// passing: err may be temporary, so opening the namespace is retried without a notice.
	passing bool

	// Guarded by Subsystem.mu.
	group uint32        // ANA group of the namespace
	state nvme.ANAState // 0: the log doesn't have the group
	stale bool          // a status contradicted state: the log must be read
	dead  bool
}

// way returns the way of controller c to a namespace that c has as ns.
func (p *path) way(n *space, c *host.Controller, ns *host.Namespace) *way {
	w := &way{ns: n, path: p, ctrl: c, queues: c.Queues(), group: ns.Identity.ANAGRPID}
	w.err = n.accepts(ns)
	if w.err != nil {
		p.sub.cfg.Log.Error("path not used", p.logKeys("nsid", n.nsid, "err", w.err)...)
	}
	w.state = p.groups.state(w.group)
	if id, told := p.groups.of[n.nsid]; told && id != w.group { // it has moved, and one of the two is outdated
		poke(p.reread)
	}
	return w
}

// usable reports whether the way takes requests at all. Called with Subsystem.mu held.
func (w *way) usable() bool { return w.err == nil && !w.dead && !w.stale }

// send submits r.
func (w *way) send(r *host.Request) {
	w.path.counters.Begun.Add(1)
	r.Route = w
	lane := r.Lane
	if lane == anyLane {
		lane = int(w.turn.Add(1))
	}
	w.queues[lane%len(w.queues)].SubmitOne(r)
}

// Ended implements host.Route: a request that succeeded, or failed for good, goes to its owner.
func (w *way) Ended(r *host.Request) bool {
	w.path.counters.Ended.Add(1)
	if r.Err == nil && r.Status().OK() {
		return false
	}
	if !w.ns.again(w, r) {
		return false
	}
	w.path.counters.Retried.Add(1)
	return true
}

// lost marks the ways of the controller dead as soon as the first request is cut short: the path itself learns of
// the loss a moment later.
func (w *way) lost() {
	s := w.ns.sub
	s.mu.Lock()
	if w.dead {
		s.mu.Unlock()
		return
	}
	w.dead = true
	for _, o := range w.path.spaces {
		o.dead = o.dead || o.ctrl == w.ctrl
	}
	s.settle(s.spaces...)
}

// doubt records that a status contradicted the ANA log, which makes the path read the log again.
func (w *way) doubt() {
	s := w.ns.sub
	s.mu.Lock()
	if w.dead || w.stale {
		s.mu.Unlock()
		return
	}
	w.stale = true
	poke(w.path.doubted)
	s.settle(w.ns)
}

// poke wakes the goroutine that receives from c, now or the next time it does.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
