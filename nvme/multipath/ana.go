package multipath

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// anaGap is the minimum time between two reads of the log caused by statuses, in case a controller's statuses keep
// contradicting its log.
const anaGap = 50 * time.Millisecond

// defaultTransition is for controllers that don't report ANATT.
const defaultTransition = 10 * time.Second

// groups is what the ANA log of a controller says. A controller without ANA has no states: all its groups count as
// optimized.
type groups struct {
	states map[uint32]nvme.ANAState // by ANAGRPID
	of     map[uint32]uint32        // the group of each namespace, by NSID
}

func (g groups) state(id uint32) nvme.ANAState {
	if g.states == nil {
		return nvme.ANAOptimized
	}
	return g.states[id]
}

// transitions holds the groups of a controller that are in the change state, and since when. Each has its own time:
// one group may begin to change before another has finished.
type transitions map[uint32]time.Time

// follow updates t to the states of g, and returns the beginning of the transition that has lasted longest, or zero
// if there is none.
func (t transitions) follow(g groups) (longest time.Time) {
	maps.DeleteFunc(t, func(id uint32, _ time.Time) bool { return g.states[id] != nvme.ANAChange })
	for id, s := range g.states {
		if s != nvme.ANAChange {
			continue
		}
		if _, known := t[id]; !known {
			t[id] = time.Now()
		}
		if longest.IsZero() || t[id].Before(longest) {
			longest = t[id]
		}
	}
	return longest
}

// readGroups reads the ANA log of a controller that has one. A controller whose log is longer than it allows to be
// read is treated as one without ANA, as in Linux: the statuses of commands must suffice.
func (p *path) readGroups(ctx context.Context, c *host.Controller) (groups, error) {
	if c.Identify().CMIC&nvme.CMICANA == 0 {
		return groups{}, nil
	}
	log, err := c.ANA(ctx)
	if errors.Is(err, host.ErrUnsupported) {
		p.sub.cfg.Log.Error("ANA states not known, and not followed", p.logKeys("err", err)...)
		return groups{}, nil
	}
	if err != nil {
		return groups{}, err
	}
	g := groups{map[uint32]nvme.ANAState{}, map[uint32]uint32{}}
	for i := range log.Groups {
		group := &log.Groups[i]
		g.states[group.ID] = group.State
		for _, nsid := range group.NSIDs {
			g.of[nsid] = group.ID
		}
	}
	return g, nil
}

// refresh reads the ANA log and updates each way's group and state; nothing else may report that the group has
// changed. Ways that were in doubt before the read began no longer are.
func (p *path) refresh(ctx context.Context, c *host.Controller) error {
	s := p.sub
	s.mu.Lock()
	var doubted []*way
	for _, w := range p.spaces {
		if w.stale {
			doubted = append(doubted, w)
		}
	}
	s.mu.Unlock()
	g := p.groups
	if g.states != nil {
		var err error
		if g, err = p.readGroups(ctx, c); err != nil {
			return err
		}
	}
	s.mu.Lock()
	p.groups = g
	for _, w := range doubted {
		w.stale = false
	}
	changed := false
	for n, w := range p.spaces {
		if id, told := g.of[n.nsid]; told {
			w.group = id
		}
		changed = changed || w.state != g.state(w.group)
		w.state = g.state(w.group)
	}
	st := p.status()
	s.settle(s.spaces...)
	if changed {
		p.tell(st)
	}
	return nil
}
