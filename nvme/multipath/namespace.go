package multipath

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// Namespace is a namespace that several paths lead to. Its methods are those of a
// host.Namespace; Controller is that of the path it was opened on.
type Namespace struct {
	*host.Namespace
	sub  *Subsystem
	ways atomic.Pointer[[]*way] // those that are as good as the best, perhaps none
	turn atomic.Uint64

	// Guarded by Subsystem.mu.
	outage  time.Time // since when there is no way; zero while there is one
	expired bool      // nothing waits any more in this outage
	timer   *time.Timer
	waiting []*host.Request
	delayed map[*host.Request]*time.Timer
}

// newNamespace is called with Subsystem.mu held.
func newNamespace(s *Subsystem, base *host.Namespace) *Namespace {
	n := &Namespace{sub: s, delayed: map[*host.Request]*time.Timer{}}
	n.ways.Store(new([]*way))
	n.Namespace = base.Over(carrier{n})
	return n
}

// anyLane stands for the queues of each way in turn.
const anyLane = -1

// carrier takes the commands of synchronous calls.
type carrier struct{ n *Namespace }

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
	n *Namespace
	i int
}

// Lane gives lane i, counted from 0.
func (n *Namespace) Lane(i int) Lane { return Lane{n, i} }

// SubmitOne sends r, as host.Queue.SubmitOne does. Its Done is called when the request ended
// on whatever path, or when no path took it in time.
func (l Lane) SubmitOne(r *host.Request) {
	l.n.begin(r, l.i)
}

// begin sends r for the first time.
func (n *Namespace) begin(r *host.Request, lane int) {
	r.Lane, r.Tries, r.Cuts, r.Refused = lane, 0, 0, time.Time{}
	n.send(r)
}

// rebuild finds the best ways. Called with Subsystem.mu held.
func (n *Namespace) rebuild() []*way {
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
func (n *Namespace) hopeless() bool {
	for _, p := range n.sub.paths {
		w := p.spaces[n]
		switch {
		case p.state == GivenUp:
		case p.state == Live && w != nil && (w.err != nil && !w.passing || w.state == nvme.ANAPersistentLoss && !w.stale):
		default:
			return false
		}
	}
	return true
}

// noPath is the error of requests that no path takes. Called with Subsystem.mu held.
func (n *Namespace) noPath() error {
	return &NoPathError{SubNQN: n.sub.SubNQN(), NSID: n.ID, For: time.Since(n.outage), Paths: n.sub.statuses()}
}

// accepts says why another path's namespace isn't this one, or can't stand in for it.
func (n *Namespace) accepts(other *host.Namespace) error {
	a, b := identifiersOf(n.Namespace), identifiersOf(other)
	several := n.sub.several.Load()
	switch {
	case a != b:
		return fmt.Errorf("%w: there %s is namespace %d, by the other path %s", ErrIdentity, b, n.ID, a)
	case a == identifiers{} && several:
		return fmt.Errorf("%w as far as can be known: it has no identifier (UUID, NGUID or EUI64)", ErrIdentity)
	case several && other.Identity.NMIC&nvme.NMICShared == 0:
		return fmt.Errorf("%w for several controllers: it isn't shared (NMIC bit 0)", ErrIdentity)
	case other.BlockSize() != n.BlockSize():
		return fmt.Errorf("%w any more: its blocks have %d bytes, not %d", ErrIdentity, other.BlockSize(), n.BlockSize())
	case other.MaxTransfer() < n.MaxTransfer():
		return fmt.Errorf("%w: a command moves %d bytes there, %d are needed", host.ErrUnsupported, other.MaxTransfer(), n.MaxTransfer())
	}
	return nil
}
