package target

import (
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
// that it can reach, and the discovery subsystem itself at the same ports. Without retain,
// reading it lets the next event through.
func (c *Controller) discoveryLog(retain bool) []byte {
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

// entry describes s at port p to the host of c; false where the host can't reach the port.
func (p *Port) entry(c *Controller, s *Subsystem) (*nvme.DiscoveryEntry, bool) {
	addr, ok := p.addressFor(c.attr.Local.Addr())
	if !ok {
		return nil, false
	}
	e := &nvme.DiscoveryEntry{
		TRTYPE:  p.Transport,
		ADRFAM:  nvme.FamilyIPv4,
		SUBTYPE: nvme.SubsystemNVM,
		TREQ:    nvme.TREQNoSQFlowControl,
		PORTID:  p.ID,
		CNTLID:  nvme.CNTLIDDynamic,
		ASQSZ:   nvme.AdminQueueSize,
		TSAS:    p.TSAS,
	}
	if addr.Is6() {
		e.ADRFAM = nvme.FamilyIPv6
	}
	if p.Secure {
		e.TREQ |= nvme.TREQSecureRequired
	}
	if s.discovery {
		e.SUBTYPE = nvme.SubsystemCurrentDiscovery
		e.EFLAGS = nvme.EFLAGSPersistent
	}
	// None of these can be too long.
	_ = nvme.PutText(e.TRSVCID[:], strconv.Itoa(int(p.Addr.Port())))
	_ = nvme.PutText(e.SUBNQN[:], s.nqn)
	_ = nvme.PutText(e.TRADDR[:], addr.String())
	return e, true
}
