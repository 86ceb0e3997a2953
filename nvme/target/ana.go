package target

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Asymmetric namespace access (NVMe base, section of that name): a namespace belongs to a
// group, and a group has a state at each port. A controller sees the states of the port that
// its host came to. Where nothing was set, a group is optimized.

// MaxANAGroup is the largest ANA group identifier.
const MaxANAGroup = 128

// What Identify Controller tells of ANA.
const (
	anaTransition = 10          // ANATT: a host may take a change for lost after so many seconds
	anaCaps       = 0x1f | 1<<6 // ANACAP: all states are reported, a namespace stays in its group
	anaCapCreate  = 1 << 7      // ANACAP: the host that creates a namespace may choose its group
)

// anaStates are the states of the groups at one port, by identifier.
type anaStates [MaxANAGroup + 1]nvme.ANAState

// anaPort is a port's part of ANA. Target.mu guards it.
type anaPort struct {
	states  anaStates // zero: optimized
	changes [MaxANAGroup + 1]uint64
	total   uint64
}

// anaStatus says whether commands fail in a state, and how.
func anaStatus(s nvme.ANAState) nvme.Status {
	switch s {
	case nvme.ANAInaccessible:
		return nvme.StatusANAInaccessible
	case nvme.ANAPersistentLoss:
		return nvme.StatusANAPersistentLoss
	case nvme.ANAChange:
		return nvme.StatusANATransition
	}
	return nvme.StatusSuccess
}

// access is success where the controller reaches a namespace, or the status of commands to it. It comes without Do Not
// Retry: another path may do.
func (c *controller) access(ns *Namespace) nvme.Status {
	return anaStatus(c.anaState(ns.anaGroup))
}

// SetANAState sets the state of an ANA group at a port, and tells the hosts that came there.
// Commands that are under way are not disturbed. The error is ErrConfig, or ErrNotFound.
func (t *Target) SetANAState(port uint16, group uint32, state nvme.ANAState) error {
	switch state {
	case nvme.ANAOptimized, nvme.ANANonOptimized, nvme.ANAInaccessible, nvme.ANAPersistentLoss, nvme.ANAChange:
	default:
		return configError("ANA state %#x is none of optimized, non-optimized, inaccessible, persistent loss, change", uint8(state))
	}
	if group < 1 || group > MaxANAGroup {
		return configError("ANA group %d, it must be 1 to %d", group, MaxANAGroup)
	}
	t.mu.Lock()
	p := t.portByID(port)
	if p == nil {
		t.mu.Unlock()
		return fmt.Errorf("target: port %d %w", port, ErrNotFound)
	}
	ana := p.ana
	if ana.state(group) == state {
		t.mu.Unlock()
		return nil
	}
	ana.states[group] = state
	ana.total++
	ana.changes[group] = ana.total
	told := t.spreadANA()
	t.mu.Unlock()
	for _, c := range told {
		c.anaChanged()
	}
	return nil
}

// PortID is the identifier of the port at an address.
func (t *Target) PortID(transport nvme.TransportType, addr netip.AddrPort) (uint16, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.ports {
		if t.ports[i].Transport == transport && t.ports[i].Addr == addr {
			return t.ports[i].ID, nil
		}
	}
	return 0, fmt.Errorf("target: port %s %s %w", transport, addr, ErrNotFound)
}

// ANAState is the state of an ANA group at a port.
func (t *Target) ANAState(port uint16, group uint32) (nvme.ANAState, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.portByID(port)
	if p == nil || group < 1 || group > MaxANAGroup {
		return 0, fmt.Errorf("target: port %d, ANA group %d %w", port, group, ErrNotFound)
	}
	return p.ana.state(group), nil
}

func (p *anaPort) state(group uint32) nvme.ANAState {
	if s := p.states[group]; s != 0 {
		return s
	}
	return nvme.ANAOptimized
}

// spreadANA gives each controller the states of its port, and marks the namespaces that some
// controller can't reach. It returns the controllers for which something changed. Called with
// mu held.
func (t *Target) spreadANA() (changed []*controller) {
	for _, c := range t.controllers {
		if t.giveANA(c) {
			changed = append(changed, c)
		}
	}
	barred := t.barredGroups()
	for _, s := range t.subsystems {
		for _, ns := range s.all() {
			ns.bar(barred[ns.anaGroup])
		}
	}
	return changed
}

// giveANA gives a controller the states of the port that its host came to, and says whether
// they are others than before. Called with mu held.
func (t *Target) giveANA(c *controller) bool {
	var now *anaStates // nil: all optimized
	if p := t.portAt(c.attr.Transport, c.attr.Local); p != nil && p.ana.total > 0 {
		states := p.ana.states
		now = &states
	}
	old := c.ana.Swap(now)
	var none anaStates
	if old == nil {
		old = &none
	}
	if now == nil {
		now = &none
	}
	return *old != *now
}

// barredGroups says which groups can't be reached through some port. Called with mu held.
func (t *Target) barredGroups() (barred [MaxANAGroup + 1]bool) {
	for i := range t.ports {
		for g, s := range t.ports[i].ana.states {
			barred[g] = barred[g] || !anaStatus(s).OK()
		}
	}
	return barred
}

// bar sets whether commands to the namespace have to look at the state of its group.
func (ns *Namespace) bar(on bool) {
	if on {
		ns.state.Or(nsBarred)
	} else {
		ns.state.And(^nsBarred)
	}
}

// anaState is the state of a group for the host of c.
func (c *controller) anaState(group uint32) nvme.ANAState {
	if states := c.ana.Load(); states != nil && states[group] != 0 {
		return states[group]
	}
	return nvme.ANAOptimized
}

// anaChanged tells the host that the ANA log is another.
func (c *controller) anaChanged() {
	c.mu.Lock()
	out := c.raise(eventANA)
	c.mu.Unlock()
	deliver(out)
}

// anaLog is the ANA log: the groups that the namespaces of the subsystem are in, without the
// namespaces where groupsOnly. Without retain, reading it lets the next event through.
func (c *controller) anaLog(groupsOnly, retain bool) []byte {
	if !retain {
		c.mu.Lock()
		c.rearm(eventANA)
		c.mu.Unlock()
	}
	var p nvme.ANALog
	at := map[uint32]int{}
	for _, ns := range c.all() {
		i, ok := at[ns.anaGroup]
		if !ok {
			i = len(p.Groups)
			at[ns.anaGroup] = i
			p.Groups = append(p.Groups, nvme.ANAGroup{ID: ns.anaGroup, State: c.anaState(ns.anaGroup)})
		}
		if !groupsOnly {
			p.Groups[i].NSIDs = append(p.Groups[i].NSIDs, ns.nsid)
		}
	}
	slices.SortFunc(p.Groups, func(a, b nvme.ANAGroup) int { return cmp.Compare(a.ID, b.ID) })
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if port := c.t.portAt(c.attr.Transport, c.attr.Local); port != nil {
		p.ChangeCount = port.ana.total
		for i := range p.Groups {
			p.Groups[i].ChangeCount = port.ana.changes[p.Groups[i].ID]
		}
	}
	// Hosts that read piece by piece read as much as there could be.
	b := p.AppendTo(make([]byte, 0, nvme.ANALogSize(MaxANAGroup, c.sub.nn())))
	return b[:cap(b)]
}
