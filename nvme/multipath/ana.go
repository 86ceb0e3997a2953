package multipath

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// anaGap is the least time between two readings of the log because of statuses, should a
// controller's keep contradicting its log.
const anaGap = 50 * time.Millisecond

// defaultTransition is for controllers that don't tell ANATT.
const defaultTransition = 10 * time.Second

// groups is what the ANA log of a controller says; one without ANA has no states, and to it all is
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

// transitions are the groups of a controller that are in the change state, and since when. Each has
// its own time: one may begin to change before another is done.
type transitions map[uint32]time.Time

// follow takes over the states that the log has now, and gives the beginning of the transition that
// has lasted longest; zero: there is none.
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

// readGroups reads the ANA log of a controller that has one. One whose log is longer than it lets anybody read is taken for
// one without ANA, as Linux takes it: the statuses of commands have to do.
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

// refresh reads the ANA log and gives each way its group, which nothing else may tell that it
// changed, and its state. A way that was doubted before the reading began isn't any more.
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
