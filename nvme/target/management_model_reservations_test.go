package target

import (
	"maps"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// may returns the status of a command for a namespace that a controller must have.
func (n *modelNamespace) may(c *modelController) nvme.Status {
	if n == nil || !n.has[c] {
		return nvme.StatusInvalidNamespace
	}
	return nvme.StatusSuccess
}

func (n *modelNamespace) holds(host int) bool {
	_, registered := n.keys[host]
	return n.kind != 0 && (n.holder == host || n.kind.AllRegistrants() && registered)
}

// conflicts is the figure "Command Behavior in the Presence of a Reservation".
func (n *modelNamespace) conflicts(host int, write bool) bool {
	_, registered := n.keys[host]
	switch n.kind {
	case nvme.ResvWriteExclusive:
		return write && !n.holds(host)
	case nvme.ResvExclusiveAccess:
		return !n.holds(host)
	case nvme.ResvWriteExclusiveRegOnly, nvme.ResvWriteExclusiveAllReg:
		return write && !registered
	case nvme.ResvExclusiveAccessRegOnly, nvme.ResvExclusiveAccessAllReg:
		return !registered
	}
	return false
}

func (n *modelNamespace) unregister(host int) {
	held := n.holds(host)
	delete(n.keys, host)
	if held && (!n.kind.AllRegistrants() || len(n.keys) == 0) {
		n.kind, n.holder = 0, 0
	}
}

// key returns mostly a host's key.
func (m *managementModel) key(n *modelNamespace, host int) uint64 {
	if n != nil && m.rnd.IntN(10) > 0 {
		return n.keys[host]
	}
	return uint64(m.rnd.IntN(4))
}

func (m *managementModel) register() {
	c, nsid := m.anyController(), m.anyNSID()
	n := m.ns[nsid]
	a := nvme.ResvAction(m.rnd.IntN(3))
	cptpl := []nvme.CPTPL{nvme.CPTPLKeep, nvme.CPTPLKeep, nvme.CPTPLClear, nvme.CPTPLSet}[m.rnd.IntN(4)]
	ignore := m.rnd.IntN(5) == 0
	k := nvme.ResvKeys{Current: m.key(n, c.host), Other: uint64(m.rnd.IntN(4))}
	want := n.may(c)
	if want == nvme.StatusSuccess {
		own, registered := n.keys[c.host]
		switch joins := !registered && (a == nvme.ResvRegister || a == nvme.ResvReplace && ignore); {
		case k.Other == 0 && (joins || a == nvme.ResvRegister):
			want = nvme.StatusInvalidField
		case joins, a == nvme.ResvRegister && own == k.Other, a == nvme.ResvReplace && registered && (ignore || own == k.Current):
			n.keys[c.host] = k.Other
		case a == nvme.ResvUnregister && registered && (ignore || own == k.Current):
			n.unregister(c.host)
		default:
			want = nvme.StatusReservationConflict
		}
		if want == nvme.StatusSuccess && cptpl != nvme.CPTPLKeep {
			n.persist = cptpl == nvme.CPTPLSet
		}
	}
	m.expect(c.io, command(func(cmd *nvme.Command) { cmd.SetResvRegister(nsid, a, ignore, cptpl) }), k.AppendTo(nil), want)
	m.note("host %d register %d of %d %+v ignore %v cptpl %d: %#x", c.host, a, nsid, k, ignore, cptpl, uint16(want))
}

func (m *managementModel) acquire() {
	c, nsid := m.anyController(), m.anyNSID()
	n := m.ns[nsid]
	a, kind := nvme.ResvAction(m.rnd.IntN(3)), nvme.ResvType(1+m.rnd.IntN(6))
	k := nvme.ResvKeys{Current: m.key(n, c.host), Other: m.key(n, 1+m.rnd.IntN(modelHosts))}
	want := n.may(c)
	if want == nvme.StatusSuccess {
		own, registered := n.keys[c.host]
		switch {
		case !registered || own != k.Current:
			want = nvme.StatusReservationConflict
		case a != nvme.ResvAcquire:
			want = n.preempt(c.host, kind, k.Other)
		case n.kind == 0:
			n.kind, n.holder = kind, c.host
		case !n.holds(c.host) || n.kind != kind:
			want = nvme.StatusReservationConflict
		}
		if n.kind.AllRegistrants() {
			n.holder = 0
		}
	}
	m.expect(c.io, command(func(cmd *nvme.Command) { cmd.SetResvAcquire(nsid, a, kind) }), k.AppendTo(nil), want)
	m.note("host %d acquire %d of %d type %d %+v: %#x", c.host, a, nsid, kind, k, uint16(want))
}

func (n *modelNamespace) preempt(host int, kind nvme.ResvType, key uint64) nvme.Status {
	var whose []int
	for h, k := range n.keys {
		if k == key {
			whose = append(whose, h)
		}
	}
	all := n.kind.AllRegistrants()
	takes := all && key == 0 || n.holder != 0 && slices.Contains(whose, n.holder)
	switch {
	case key == 0 && !takes:
		return nvme.StatusInvalidField
	case all && key == 0:
		whose = slices.Collect(maps.Keys(n.keys))
	case len(whose) == 0:
		return nvme.StatusReservationConflict
	}
	for _, h := range whose {
		if !takes || h != host {
			delete(n.keys, h)
		}
	}
	if takes {
		n.kind, n.holder = kind, host
	} else if len(n.keys) == 0 {
		n.kind, n.holder = 0, 0
	}
	return nvme.StatusSuccess
}

func (m *managementModel) release() {
	c, nsid := m.anyController(), m.anyNSID()
	n := m.ns[nsid]
	a, kind := nvme.ResvAction(m.rnd.IntN(2)), nvme.ResvType(1+m.rnd.IntN(6))
	if n != nil && n.kind != 0 && m.rnd.IntN(3) > 0 {
		kind = n.kind
	}
	k := nvme.ResvKeys{Current: m.key(n, c.host)}
	want := n.may(c)
	if want == nvme.StatusSuccess {
		own, registered := n.keys[c.host]
		switch {
		case !registered || own != k.Current:
			want = nvme.StatusReservationConflict
		case a == nvme.ResvClear:
			clear(n.keys)
			n.kind, n.holder = 0, 0
		case !n.holds(c.host):
		case n.kind != kind:
			want = nvme.StatusInvalidField
		default:
			n.kind, n.holder = 0, 0
		}
	}
	m.expect(c.io, command(func(cmd *nvme.Command) { cmd.SetResvRelease(nsid, a, kind) }), k.AppendTo(nil)[:nvme.ResvReleaseSize], want)
	m.note("host %d release %d of %d type %d %+v: %#x", c.host, a, nsid, kind, k, uint16(want))
}
