package target

import (
	"net/netip"
	"strconv"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// discoveryChanged notes that the discovery log is another, and tells the discovery
// controllers.
func (t *Target) discoveryChanged() {
	t.mu.Lock()
	t.generation++
	t.mu.Unlock()
	for _, c := range t.controllersOf(t.discovery) {
		c.mu.Lock()
		out := c.raise(eventDiscovery)
		c.mu.Unlock()
		deliver(out)
	}
}

// discoveryLog is the log for the host of c: the subsystems that it may use, at the ports
// that it can reach, the discovery subsystem itself at the same ports, and the referrals.
// Without retain, reading it lets the next event through.
func (c *controller) discoveryLog(retain bool) []byte {
	if !retain {
		// First, so that a change from here on is a new event.
		c.mu.Lock()
		c.rearm(eventDiscovery)
		c.mu.Unlock()
	}
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	var entries []byte
	for i := range t.ports {
		if e, ok := t.ports[i].entry(c, t.discovery); ok {
			entries = e.AppendTo(entries)
		}
	}
	for i := range t.referrals {
		entries = t.referrals[i].entry().AppendTo(entries)
	}
	for _, s := range t.sortedSubsystems() {
		if !s.allows(c.hostNQN) {
			continue
		}
		for i := range t.ports {
			if e, ok := t.ports[i].entry(c, s); ok {
				entries = e.AppendTo(entries)
			}
		}
	}
	h := nvme.DiscoveryHeader{GENCTR: t.generation, NUMREC: uint64(len(entries) / nvme.DiscoveryEntrySize)}
	return append(h.AppendTo(nil), entries...)
}

// entry describes s at port p to the host of c; false where the host can't reach the port. Called with Target.mu held.
func (p *Port) entry(c *controller, s *Subsystem) (*nvme.DiscoveryEntry, bool) {
	addr, ok := p.addressFor(c.attr.Local.Addr())
	at := netip.AddrPortFrom(addr, p.Addr.Port())
	if !ok || c.t.portAt(p.Transport, at) != p { // else another one listens there
		return nil, false
	}
	e := discoveryEntry(p.Transport, at, p.Secure, s.nqn)
	e.PORTID, e.TSAS = p.ID, p.TSAS
	if s.discovery {
		e.SUBTYPE = nvme.SubsystemCurrentDiscovery
		e.EFLAGS = nvme.EFLAGSPersistent
	}
	return e, true
}

// discoveryEntry describes an NVM subsystem at an address.
func discoveryEntry(tt nvme.TransportType, addr netip.AddrPort, secure bool, nqn string) *nvme.DiscoveryEntry {
	e := &nvme.DiscoveryEntry{
		TRTYPE:  tt,
		ADRFAM:  nvme.FamilyIPv4,
		SUBTYPE: nvme.SubsystemNVM,
		TREQ:    nvme.TREQNoSQFlowControl,
		CNTLID:  nvme.CNTLIDDynamic,
		ASQSZ:   nvme.AdminQueueSize,
	}
	if addr.Addr().Is6() {
		e.ADRFAM = nvme.FamilyIPv6
	}
	if secure {
		e.TREQ |= nvme.TREQSecureRequired
	}
	// None of these can be too long.
	_ = nvme.PutText(e.TRSVCID[:], strconv.Itoa(int(addr.Port())))
	_ = nvme.PutText(e.SUBNQN[:], nqn)
	_ = nvme.PutText(e.TRADDR[:], addr.Addr().String())
	return e
}
