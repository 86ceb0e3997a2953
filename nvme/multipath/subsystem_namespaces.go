package multipath

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// Namespaces opens every namespace that is active on any live path, in the order of their NSIDs. A namespace that
// disappeared in the meantime is left out. So is one that can't be used, and what a path doesn't list: then the error
// says why, and the usable ones are still returned. The result is nil if nothing is known of the namespaces.
func (s *Subsystem) Namespaces(ctx context.Context) ([]*Namespace, error) {
	ids, unlisted := s.active(ctx)
	if ids == nil {
		return nil, unlisted
	}
	all := make([]*Namespace, 0, len(ids))
	errs := []error{unlisted}
	for _, id := range ids {
		n, err := s.Namespace(ctx, id)
		switch {
		case err == nil:
			all = append(all, n)
		case errors.Is(err, nvme.StatusInvalidNamespace):
		case ctx.Err() != nil || len(s.Controllers()) == 0:
			return nil, err
		default:
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// active returns the NSIDs of the namespaces that are active on any live path, in ascending order: a namespace is
// attached to each controller separately. The error says why live paths didn't list theirs. The result is nil if no
// path did.
func (s *Subsystem) active(ctx context.Context) ([]uint32, error) {
	all := []uint32{}
	lost, told := s.notLive(0), false
	var errs []error
	for _, c := range s.Controllers() {
		ids, err := c.ActiveNamespaces(ctx)
		switch {
		case err == nil:
			all, told = append(all, ids...), true
		case ctx.Err() != nil:
			return nil, err
		case c.Err() != nil: // the other paths stand in for a lost one
			lost = err
		default:
			errs = append(errs, &pathError{pathName(c), err})
		}
	}
	switch {
	case told:
		slices.Sort(all)
		return slices.Compact(all), errors.Join(errs...)
	case len(errs) > 0:
		return nil, errors.Join(errs...)
	}
	return nil, lost
}

// notLive returns the error for when a live path is needed, to namespace nsid if that isn't 0, and there is none.
func (s *Subsystem) notLive(nsid uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return errClosed
	}
	e := &NoPathError{SubNQN: s.SubNQN(), NSID: nsid, Paths: s.statuses()}
	if !s.dark.IsZero() {
		e.For = time.Since(s.dark)
	}
	return e
}

// Namespace opens the namespace nsid, as it is now, on every live path; the other paths join when they are live.
// One command transfers what the path with the smallest transfers allows. Opening a namespace again shows its
// present state: whether it has grown or, if another namespace has its NSID now, that one; the old one then takes
// no more requests. If no path leads to it, the error says why each doesn't whose controller has it. Requests to an open
// namespace wait for a path, but neither Namespace nor Namespaces does: while none is live the error is a [NoPathError].
func (s *Subsystem) Namespace(ctx context.Context, nsid uint32) (*Namespace, error) {
	var found []*host.Namespace
	var base *host.Namespace
	var absent error // it isn't attached to a controller
	var errs []error
	defer s.lookAgain(s.notices.Load())
	for _, c := range s.Controllers() {
		ns, err := c.Namespace(ctx, nsid)
		switch {
		case errors.Is(err, nvme.StatusInvalidNamespace):
			absent = err
		case err != nil:
			errs = append(errs, &pathError{pathName(c), err})
		default:
			found = append(found, ns)
			if base == nil || ns.MaxTransfer() < base.MaxTransfer() {
				base = ns
			}
		}
	}
	switch {
	case base != nil:
	case len(errs) > 0:
		return nil, errors.Join(errs...)
	case absent != nil:
		return nil, absent
	default:
		return nil, s.notLive(nsid)
	}
	s.mu.Lock()
	n := s.space(nsid)
	if n != nil && n.accepts(base) != nil {
		n.review(found)
		s.settle(n) // this ends the requests that wait for it
		s.mu.Lock()
		if n.hopeless() {
			n.replaced = true
			s.spaces = slices.DeleteFunc(s.spaces, func(o *space) bool { return o == n })
		}
		n = s.space(nsid)
	}
	if n == nil {
		return s.enter(found, base).opened(base), nil
	}
	defer s.mu.Unlock()
	if n.accepts(base) != nil { // a path that isn't live may still lead to the old one
		base = n.base
	}
	return n.opened(base), nil
}

// lookAgain has all paths look at the namespaces again if there were notices since there had been that many: they may
// have done so before they knew a namespace that was being opened, and what was found of that may be outdated.
func (s *Subsystem) lookAgain(notices uint64) {
	if s.notices.Load() == notices {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.paths {
		poke(p.rescan)
	}
}

// space returns the space of a namespace that was opened, or nil. Called with mu held.
func (s *Subsystem) space(nsid uint32) *space {
	if i := slices.IndexFunc(s.spaces, func(n *space) bool { return n.nsid == nsid }); i >= 0 {
		return s.spaces[i]
	}
	return nil
}

// enter makes each path lead to a namespace, which some of them have found. Called with mu held; it unlocks it.
func (s *Subsystem) enter(found []*host.Namespace, base *host.Namespace) *space {
	n := newSpace(s, base)
	s.spaces = append(s.spaces, n)
	for _, p := range s.paths {
		if i := slices.IndexFunc(found, func(ns *host.Namespace) bool { return ns.Controller() == p.ctrl }); i >= 0 {
			p.spaces[n] = p.way(n, p.ctrl, found[i])
		} else {
			poke(p.rescan)
		}
	}
	s.settle(n)
	return n
}
