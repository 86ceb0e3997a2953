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

// state is that of a group. A nil anaStates has all optimized.
func (s *anaStates) state(group uint32) nvme.ANAState {
	if s == nil || s[group] == 0 {
		return nvme.ANAOptimized
	}
	return s[group]
}

// anaCounts are the change counts of the ANA log of a controller, since its reset.
type anaCounts struct {
	log    uint64
	groups [MaxANAGroup + 1]uint64
}

func (n *anaCounts) changed(group uint32) {
	n.log++
	n.groups[group]++
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
	if p.ana.state(group) == state {
		t.mu.Unlock()
		return nil
	}
	p.ana[group] = state
	told := t.spreadANA()
	t.mu.Unlock()
	for _, c := range told {
		c.anaChanged()
	}
	return nil
}

// PortID is the identifier of the port at an address. The error is ErrNotFound.
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

// spreadANA gives each controller the states of its port, and marks the namespaces that some
// controller can't reach. It returns the controllers whose log is another. Called with mu held.
func (t *Target) spreadANA() (changed []*controller) {
	for _, c := range t.controllers {
		if c.giveANA(t.anaFor(c)) {
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

// anaFor is what a controller is to have: the states of the port that its host came to, or nil where all are optimized.
// Called with mu held.
func (t *Target) anaFor(c *controller) *anaStates {
	p := t.portAt(c.attr.Transport, c.attr.Local)
	if p == nil || *p.ana == (anaStates{}) {
		return nil
	}
	states := *p.ana
	return &states
}

// giveANA gives a controller the states of groups, and says whether one that it has namespaces of is in another than
// before: only those are in its log. Called with Target.mu held.
func (c *controller) giveANA(now *anaStates) (changed bool) {
	old := c.ana.Swap(now)
	var seen [MaxANAGroup + 1]bool
	for _, ns := range c.all() {
		if g := ns.anaGroup; !seen[g] && old.state(g) != now.state(g) {
			seen[g], changed = true, true
			c.countANA(g)
		}
	}
	return changed
}

// countANA counts that a namespace came or went, for the controllers that have or had it. Called with mu held, since
// before it did.
func (t *Target) countANA(ns *Namespace) {
	for _, c := range t.controllers {
		if c.sub == ns.sub && c.has(ns.nsid) {
			c.countANA(ns.anaGroup)
		}
	}
}

// countANA counts a change of a group, in its state or its namespaces. Called with Target.mu held, since before the
// change.
func (c *controller) countANA(group uint32) {
	c.mu.Lock()
	c.anaCounts.changed(group)
	c.mu.Unlock()
}

// barredGroups says which groups can't be reached through some port. Called with mu held.
func (t *Target) barredGroups() (barred [MaxANAGroup + 1]bool) {
	for i := range t.ports {
		for g, s := range t.ports[i].ana {
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
	return c.ana.Load().state(group)
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
	p := c.anaGroups(groupsOnly)
	slices.SortFunc(p.Groups, func(a, b nvme.ANAGroup) int { return cmp.Compare(a.ID, b.ID) })
	// Hosts that read piece by piece read as much as there could be.
	b := p.AppendTo(make([]byte, 0, nvme.ANALogSize(MaxANAGroup, c.sub.nn())))
	return b[:cap(b)]
}

// anaGroups is the log with its groups in any order. Change counts begin with 0 for the log and, because that says that
// there is none, with 1 for a group.
func (c *controller) anaGroups(groupsOnly bool) (p nvme.ANALog) {
	c.t.mu.Lock() // what is counted is what is listed
	defer c.t.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	p.ChangeCount = c.anaCounts.log
	at := map[uint32]int{}
	for _, ns := range c.all() {
		g := ns.anaGroup
		i, ok := at[g]
		if !ok {
			i = len(p.Groups)
			at[g] = i
			p.Groups = append(p.Groups, nvme.ANAGroup{ID: g, State: c.anaState(g), ChangeCount: 1 + c.anaCounts.groups[g]})
		}
		if !groupsOnly {
			p.Groups[i].NSIDs = append(p.Groups[i].NSIDs, ns.nsid)
		}
	}
	return p
}
