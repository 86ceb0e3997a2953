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
// host.Namespace; Controller returns the controller of the path that it was opened on.
type Namespace struct {
	*host.Namespace
	*space
}

// Lane returns lane i, counted from 0.
func (n *Namespace) Lane(i int) Lane { return Lane{n.space, i} }

// space is the set of ways to a namespace. There is one however often the namespace was opened, and however large
// it then was.
type space struct {
	nsid uint32
	base *host.Namespace // as first opened, by the path with the smallest transfers
	sub  *Subsystem
	ways atomic.Pointer[[]*way] // the best ones, perhaps none
	turn atomic.Uint64

	// Guarded by Subsystem.mu.
	replaced bool      // by another namespace that now has its NSID
	outage   time.Time // since when there has been no way; zero while there is one
	timer    *time.Timer
	waiting  []*host.Request
	delayed  map[*host.Request]*time.Timer
}

func newSpace(s *Subsystem, base *host.Namespace) *space {
	n := &space{nsid: base.ID, base: base, sub: s, delayed: map[*host.Request]*time.Timer{}}
	n.ways.Store(new([]*way))
	return n
}

// opened returns the namespace as it is now, seen through the live path with the smallest transfers.
func (n *space) opened(now *host.Namespace) *Namespace {
	return &Namespace{now.Over(carrier{n}, n.base.MaxTransfer()), n}
}

// anyLane means to use the queues of each way in turn.
const anyLane = -1

// carrier carries the commands of synchronous calls.
type carrier struct{ n *space }

// SubmitOne implements host.Carrier.
func (c carrier) SubmitOne(r *host.Request) {
	c.n.begin(r, anyLane)
}

// Cancel implements host.Carrier: it makes r end, wherever it is.
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

// Alloc implements host.Carrier.
func (c carrier) Alloc(n int) ([]byte, error) { return c.n.sub.Alloc(n) }

// Free implements host.Carrier.
func (c carrier) Free(b []byte) { c.n.sub.Free(b) }

// Lane is one user's access to a namespace: if a path has as many queues as there are lanes, each lane has a queue
// of its own on each path.
type Lane struct {
	n *space
	i int
}

// SubmitOne sends r, as host.Queue.SubmitOne does. Its Done is called when the request has ended on any path, or
// when no path took it in time. Requests submitted one after another may take different paths: a fused pair needs one
// queue of one controller (host.Queue.Submit) where there are several.
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
		n.outage = time.Time{}
	case n.outage.IsZero():
		n.outage = time.Now()
	}
	return *best
}

// hopeless reports whether no path can lead to the namespace any more. Called with Subsystem.mu held.
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

// noPath returns the error for requests that no path takes. Called with Subsystem.mu held.
func (n *space) noPath() error {
	return &NoPathError{SubNQN: n.sub.SubNQN(), NSID: n.nsid, For: time.Since(n.outage), Paths: n.sub.statuses()}
}

// accepts returns why another path's namespace isn't this one, or can't stand in for it; nil if it can.
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

// review replaces the ways through which another namespace was found just now, so that they no longer lead to n.
// Called with Subsystem.mu held.
func (n *space) review(found []*host.Namespace) {
	for _, p := range n.sub.paths {
		for _, ns := range found {
			if w := p.spaces[n]; w != nil && w.err == nil && ns.Controller() == p.ctrl && n.accepts(ns) != nil {
				p.spaces[n] = p.way(n, p.ctrl, ns)
			}
		}
	}
}
