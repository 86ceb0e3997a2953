package multipath

import (
	"context"
	"errors"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// open looks for a namespace on a controller. It fails only if the connection is lost; any other problem is
// recorded in the way.
func (p *path) open(ctx context.Context, c *host.Controller, n *space) (*way, error) {
	ns, err := c.Namespace(ctx, n.nsid)
	if err == nil {
		return p.way(n, c, ns), nil
	}
	if errors.Is(err, host.ErrLost) || ctx.Err() != nil {
		return nil, err
	}
	s := p.sub
	s.mu.Lock()
	old := p.spaces[n]
	s.mu.Unlock()
	w := &way{ns: n, path: p, ctrl: c, err: err, passing: passing(err)}
	if old == nil || old.err == nil || old.passing != w.passing {
		s.cfg.Log.Warn("path not used", p.logKeys("nsid", n.nsid, "err", err)...)
	}
	return w, nil
}

// passing reports whether a namespace that couldn't be opened because of err may open a little later without a
// notice from the controller, which announces namespaces that appear or disappear.
func passing(err error) bool {
	return !final(err) && !errors.Is(err, nvme.StatusInvalidNamespace) && !errors.Is(err, host.ErrUnsupported) &&
		!errors.Is(err, host.ErrNamespace)
}

// mayOpen reports whether it is worth trying to open the namespace again without being asked.
func (w *way) mayOpen() bool { return w != nil && w.err != nil && w.passing }

// anyWay makes reopen look at every namespace.
func anyWay(*way) bool { return true }

// hasHopes reports whether there is a namespace to be opened again.
func (p *path) hasHopes() bool {
	s := p.sub
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range p.spaces {
		if w.mayOpen() {
			return true
		}
	}
	return false
}

// reopening times the next attempt to open namespaces that couldn't be opened for a passing reason.
type reopening struct {
	timer *time.Timer
	armed bool
	wait  backoff
}

func newReopening(most time.Duration) *reopening {
	r := &reopening{timer: time.NewTimer(most), wait: newBackoff(most)}
	r.timer.Stop()
	return r
}

// follow makes the timer run while there is something to open.
func (r *reopening) follow(needed bool) {
	switch {
	case !needed:
		r.timer.Stop()
		r.armed, r.wait = false, newBackoff(r.wait.most)
	case !r.armed:
		r.armed = true
		r.timer.Reset(r.wait.pause())
	}
}

// reopen looks again at the namespaces whose ways meant selects: a namespace may have disappeared or been replaced
// by another.
func (p *path) reopen(ctx context.Context, c *host.Controller, meant func(*way) bool) error {
	s := p.sub
	s.mu.Lock()
	var spaces []*space
	for _, n := range s.spaces {
		if meant(p.spaces[n]) {
			spaces = append(spaces, n)
		}
	}
	s.mu.Unlock()
	changed := false
	for _, n := range spaces {
		w, err := p.open(ctx, c, n)
		if err != nil {
			return err
		}
		s.mu.Lock()
		if n.replaced { // meanwhile
			s.mu.Unlock()
			continue
		}
		old := p.spaces[n]
		changed = changed || old == nil || (old.err == nil) != (w.err == nil)
		if old == nil || old.err != nil || w.err != nil || old.group != w.group {
			p.spaces[n] = w
		}
		s.settle(n)
	}
	s.mu.Lock()
	st := p.status()
	s.mu.Unlock()
	if changed {
		p.tell(st)
	}
	return p.refresh(ctx, c)
}
