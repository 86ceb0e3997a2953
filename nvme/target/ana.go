package target

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Asymmetric namespace access (NVMe base, section of that name): a namespace belongs to a group, and a group has a
// state at each port. A controller sees the states of the port that its host connected to. A group whose state was not
// set is optimized.

// MaxANAGroup is the largest ANA group identifier.
const MaxANAGroup = 128

// What Identify Controller reports about ANA.
const (
	anaTransition = 10          // ANATT: seconds after which a host may give up on a transition
	anaCaps       = 0x1f | 1<<6 // ANACAP: all states are reported, a namespace stays in its group
	anaCapCreate  = 1 << 7      // ANACAP: the host that creates a namespace may choose its group
)

// anaStates are the states of the groups at one port, by identifier.
type anaStates [MaxANAGroup + 1]nvme.ANAState

// state returns the state of a group. With a nil anaStates all are optimized.
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

// anaStatus returns the status with which commands fail in a state, or success.
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

// access returns success if the controller can reach a namespace, or the status for commands to it. That is without Do
// Not Retry: another path may work.
func (c *controller) access(ns *Namespace) nvme.Status {
	return anaStatus(c.anaState(ns.anaGroup))
}

// SetANAState sets the state of an ANA group at a port, and tells the hosts that connected there. Commands under way
// are not disturbed. The error is ErrConfig, ErrNotFound, or ErrClosed.
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
	switch {
	case t.closed:
		t.mu.Unlock()
		return ErrClosed
	case p == nil:
		t.mu.Unlock()
		return fmt.Errorf("target: port %d %w", port, ErrNotFound)
	}
	var told []*controller
	if p.ana.state(group) != state { // spreading goes through all namespaces of all controllers
		p.ana[group] = state
		told = t.spreadANA()
	}
	t.mu.Unlock()
	for _, c := range told {
		deliver(c.tell(eventANA))
	}
	return nil
}

// spreadANA gives each controller the states of its port, and marks the namespaces that some controller can't reach. It
// returns the controllers whose log has changed. Called with mu held.
func (t *Target) spreadANA() (changed []*controller) {
	for _, c := range t.controllers {
		if c.giveANA(t.anaFor(c)) {
			changed = append(changed, c)
		}
	}
	t.barAll()
	return changed
}

// barAll marks the namespaces that some controller can't reach. Called with mu held.
func (t *Target) barAll() {
	barred := t.barredGroups()
	for _, s := range t.subsystems {
		s.bar(&barred)
	}
}

// bar marks the namespaces that some controller can't reach. Called with Target.mu held.
func (s *Subsystem) bar(barred *[MaxANAGroup + 1]bool) {
	for _, ns := range s.all() {
		ns.setState(nsBarred, barred[ns.anaGroup])
	}
}

// anaFor returns the states that a controller is to have: those of the port that its host connected to, or nil if all
// are optimized. If that port is gone, the controller keeps what it has: its connections are about to end, and until
// then they must not reach what the port didn't lead to. Called with mu held.
func (t *Target) anaFor(c *controller) *anaStates {
	p := t.portAt(c.attr.Transport, c.attr.Local)
	if p == nil {
		return c.ana.Load()
	}
	if *p.ana == (anaStates{}) {
		return nil
	}
	states := *p.ana
	return &states
}

// giveANA gives a controller the states of groups, and reports whether the state of a group that it has namespaces in
// has changed: only those are in its log. Called with Target.mu held.
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

// countANA counts that a namespace came or went, for the controllers that have or had it. Called with mu held since
// before the change.
func (t *Target) countANA(ns *Namespace) {
	for _, c := range t.controllers {
		if c.sub == ns.sub && c.has(ns.nsid) {
			c.countANA(ns.anaGroup)
		}
	}
}

// countANA counts a change of a group, of its state or its namespaces. Called with Target.mu held since before the
// change.
func (c *controller) countANA(group uint32) {
	c.mu.Lock()
	c.anaCounts.changed(group)
	c.mu.Unlock()
}

// barredGroups returns which groups can't be reached through some port, or by a controller whose port is gone. Called
// with mu held.
func (t *Target) barredGroups() (barred [MaxANAGroup + 1]bool) {
	bar := func(states *anaStates) {
		for g, s := range states {
			barred[g] = barred[g] || !anaStatus(s).OK()
		}
	}
	for i := range t.ports {
		bar(t.ports[i].ana)
	}
	for _, c := range t.controllers {
		if states := c.ana.Load(); states != nil {
			bar(states)
		}
	}
	return barred
}

// anaState returns the state of a group for the host of c.
func (c *controller) anaState(group uint32) nvme.ANAState {
	return c.ana.Load().state(group)
}

// anaLog returns the ANA log: the groups of the subsystem's namespaces, without the namespaces if groupsOnly. Without
// retain, reading it lets the next event through.
func (c *controller) anaLog(groupsOnly, retain bool) []byte {
	if !retain {
		c.mu.Lock()
		c.rearm(eventANA)
		c.mu.Unlock()
	}
	p := c.anaGroups(groupsOnly)
	slices.SortFunc(p.Groups, func(a, b nvme.ANAGroup) int { return cmp.Compare(a.ID, b.ID) })
	// Hosts that read the log in pieces read as much as its largest size.
	b := p.AppendTo(make([]byte, 0, nvme.ANALogSize(MaxANAGroup, c.sub.nn())))
	return b[:cap(b)]
}

// anaGroups returns the log with its groups in any order. Change counts begin with 0 for the log, and with 1 for a
// group, because 0 says that a group has none.
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
