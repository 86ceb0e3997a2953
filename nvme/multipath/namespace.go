package multipath

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// Namespace is a namespace that several paths lead to, as it was when it was opened. Its methods are those of a
// host.Namespace; Controller is that of the path it was opened on.
type Namespace struct {
	*host.Namespace
	*space
}

// Lane gives lane i, counted from 0.
func (n *Namespace) Lane(i int) Lane { return Lane{n.space, i} }

// space is how paths lead to a namespace, however often that was opened, and as large as it then was.
type space struct {
	nsid uint32
	base *host.Namespace // as it was first opened, by the path that takes the least
	sub  *Subsystem
	ways atomic.Pointer[[]*way] // those that are as good as the best, perhaps none
	turn atomic.Uint64

	// Guarded by Subsystem.mu.
	replaced bool      // by another namespace that has its NSID now
	outage   time.Time // since when there is no way; zero while there is one
	expired  bool      // nothing waits any more in this outage
	timer    *time.Timer
	waiting  []*host.Request
	delayed  map[*host.Request]*time.Timer
}

func newSpace(s *Subsystem, base *host.Namespace) *space {
	n := &space{nsid: base.ID, base: base, sub: s, delayed: map[*host.Request]*time.Timer{}}
	n.ways.Store(new([]*way))
	return n
}

// opened is the namespace as it is now, by the path that takes the least of those that live.
func (n *space) opened(now *host.Namespace) *Namespace {
	return &Namespace{now.Over(carrier{n}, n.base.MaxTransfer()), n}
}

// anyLane stands for the queues of each way in turn.
const anyLane = -1

// carrier takes the commands of synchronous calls.
type carrier struct{ n *space }

// SubmitOne is host.Carrier's.
func (c carrier) SubmitOne(r *host.Request) {
	c.n.begin(r, anyLane)
}

// Cancel is host.Carrier's: it brings about the end of r, wherever it is.
func (c carrier) Cancel(r *host.Request, last bool) {
	s := c.n.sub
	s.mu.Lock()
	waited := c.n.forget(r)
	s.mu.Unlock()
	if waited {
		finish(r, errCancelled)
		return
	}
	for _, ctrl := range s.Controllers() {
		for _, q := range ctrl.Queues() {
			q.Cancel(r, last)
		}
	}
}

// Alloc is host.Carrier's.
func (c carrier) Alloc(n int) ([]byte, error) { return c.n.sub.Alloc(n) }

// Free is host.Carrier's.
func (c carrier) Free(b []byte) { c.n.sub.Free(b) }

// Lane is the way to a namespace for one of several users: where a path has as many queues as
// there are lanes, each has a queue of its own on each path.
type Lane struct {
	n *space
	i int
}

// SubmitOne sends r, as host.Queue.SubmitOne does. Its Done is called when the request ended
// on whatever path, or when no path took it in time.
func (l Lane) SubmitOne(r *host.Request) {
	l.n.begin(r, l.i)
}

// begin sends r for the first time.
func (n *space) begin(r *host.Request, lane int) {
	r.Lane, r.Tries, r.Cuts, r.Refused = lane, 0, 0, time.Time{}
	n.send(r)
}

// rebuild finds the best ways. Called with Subsystem.mu held.
func (n *space) rebuild() []*way {
	best := new([]*way)
	for _, state := range []nvme.ANAState{nvme.ANAOptimized, nvme.ANANonOptimized} {
		for _, p := range n.sub.paths {
			if w := p.spaces[n]; w != nil && w.usable() && w.state == state {
				*best = append(*best, w)
			}
		}
		if len(*best) > 0 {
			break
		}
	}
	if !slices.Equal(*best, *n.ways.Load()) {
		n.ways.Store(best)
	}
	switch {
	case len(*best) > 0:
		n.outage, n.expired = time.Time{}, false
	case n.outage.IsZero():
		n.outage = time.Now()
	}
	return *best
}

// hopeless reports whether no path can come to lead to the namespace. Called with
// Subsystem.mu held.
func (n *space) hopeless() bool {
	for _, p := range n.sub.paths {
		w := p.spaces[n]
		switch {
		case n.replaced, p.state == GivenUp:
		case p.state == Live && w != nil && (w.err != nil && !w.passing || w.state == nvme.ANAPersistentLoss && !w.stale):
		default:
			return false
		}
	}
	return true
}

// noPath is the error of requests that no path takes. Called with Subsystem.mu held.
func (n *space) noPath() error {
	return &NoPathError{SubNQN: n.sub.SubNQN(), NSID: n.nsid, For: time.Since(n.outage), Paths: n.sub.statuses()}
}

// accepts says why another path's namespace isn't this one, or can't stand in for it.
func (n *space) accepts(other *host.Namespace) error {
	a, b := identifiersOf(n.base), identifiersOf(other)
	several := n.sub.several.Load()
	switch {
	case a != b:
		return fmt.Errorf("%w: there %s is namespace %d, by the other path %s", ErrIdentity, b, n.nsid, a)
	case a == identifiers{} && several:
		return fmt.Errorf("%w as far as can be known: it has no identifier (UUID, NGUID or EUI64)", ErrIdentity)
	case several && other.Identity.NMIC&nvme.NMICShared == 0:
		return fmt.Errorf("%w for several controllers: it isn't shared (NMIC bit 0)", ErrIdentity)
	case other.BlockSize() != n.base.BlockSize():
		return fmt.Errorf("%w any more: its blocks have %d bytes, not %d", ErrIdentity, other.BlockSize(), n.base.BlockSize())
	case other.MaxTransfer() < n.base.MaxTransfer():
		return fmt.Errorf("%w: a command moves %d bytes there, %d are needed", host.ErrUnsupported, other.MaxTransfer(), n.base.MaxTransfer())
	}
	return nil
}

// review has ways lead there no more by which something else was found just now. Called with Subsystem.mu held.
func (n *space) review(found []*host.Namespace) {
	for _, p := range n.sub.paths {
		for _, ns := range found {
			if w := p.spaces[n]; w != nil && w.err == nil && ns.Controller() == p.ctrl && n.accepts(ns) != nil {
				p.spaces[n] = p.way(n, p.ctrl, ns)
			}
		}
	}
}
