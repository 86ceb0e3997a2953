package target

import (
	"net/netip"
	"strconv"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// discoveryChanged tells the discovery controllers that the discovery log has changed. What changes it also counts that
// in generation, with mu held all the while: hosts that read the log in pieces rely on it.
func (t *Target) discoveryChanged() {
	for _, c := range t.controllersOf(t.discovery) {
		deliver(c.tell(eventDiscovery))
	}
}

// discoveryLog is the log for the host of c: the discovery subsystem itself at the ports that the host can reach, the
// referrals, and the subsystems that it may use, at the same ports. Hosts read it in pieces, so entries are made when
// they are read.
type discoveryLog struct {
	generation uint64
	ports      []reachablePort
	referrals  []Referral
	discovery  *Subsystem
	subsystems []*Subsystem
}

// reachablePort is a port, and the address at which a host can reach it.
type reachablePort struct {
	*Port
	at netip.AddrPort
}

// discoveryLog returns the log as it is now.
func (c *controller) discoveryLog() *discoveryLog {
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &discoveryLog{generation: t.generation, referrals: t.referrals, discovery: t.discovery}
	for i := range t.ports {
		p := &t.ports[i]
		addr, ok := p.addressFor(c.attr.Local.Addr())
		at := netip.AddrPortFrom(addr, p.Addr.Port())
		if ok && !p.Unlisted && t.portAt(p.Transport, at) == p { // otherwise another one listens there
			l.ports = append(l.ports, reachablePort{p, at})
		}
	}
	all := t.sortedSubsystems()
	l.subsystems = make([]*Subsystem, 0, len(all))
	for _, s := range all {
		if s.allows(c.hostNQN) {
			l.subsystems = append(l.subsystems, s)
		}
	}
	return l
}

// entries returns the number of entries.
func (l *discoveryLog) entries() int {
	return len(l.ports) + len(l.referrals) + len(l.subsystems)*len(l.ports)
}

func (l *discoveryLog) size() uint64 {
	return nvme.DiscoveryHeaderSize + uint64(l.entries())*nvme.DiscoveryEntrySize
}

// entry makes entry i, counted from 0.
func (l *discoveryLog) entry(i int) *nvme.DiscoveryEntry {
	if i < len(l.ports) {
		return l.ports[i].entry(l.discovery)
	}
	i -= len(l.ports)
	if i < len(l.referrals) {
		return l.referrals[i].entry()
	}
	i -= len(l.referrals)
	return l.ports[i%len(l.ports)].entry(l.subsystems[i/len(l.ports)])
}

// piece makes n bytes from an offset within the log, fewer at its end, or up to as many more as complete an entry.
func (l *discoveryLog) piece(off, n uint64) (b []byte) {
	first, end := off/nvme.DiscoveryEntrySize, min(off+n, l.size())
	for at := first * nvme.DiscoveryEntrySize; at < end; at += nvme.DiscoveryEntrySize {
		if at == 0 {
			h := nvme.DiscoveryHeader{GENCTR: l.generation, NUMREC: uint64(l.entries())}
			b = h.AppendTo(b)
			continue
		}
		b = l.entry(int((at - nvme.DiscoveryHeaderSize) / nvme.DiscoveryEntrySize)).AppendTo(b)
	}
	return b[min(off-first*nvme.DiscoveryEntrySize, uint64(len(b))):]
}

// replyDiscoveryLog responds with a piece of the log. Without RAE, reading it lets the next event through.
func (r *Request) replyDiscoveryLog() {
	c, off := r.engine.q.ctrl, r.Cmd.LogOffset()
	l := c.discoveryLog()
	if off <= l.size() && !r.Cmd.LogRAE() {
		c.mu.Lock()
		c.rearm(eventDiscovery)
		c.mu.Unlock()
		l = c.discoveryLog() // a change from here on is a new event
	}
	if off > l.size() {
		r.fail(nvme.StatusInvalidField, offLPO)
		return
	}
	r.replyWith(l.piece(off, r.Cmd.LogLength()))
}

// entry describes s at the port.
func (p *reachablePort) entry(s *Subsystem) *nvme.DiscoveryEntry {
	e := discoveryEntry(p.Transport, p.at, p.Secure, s.nqn)
	e.PORTID, e.TSAS = p.ID, p.TSAS
	if s.discovery {
		e.SUBTYPE = nvme.SubsystemCurrentDiscovery
		e.EFLAGS = nvme.EFLAGSPersistent
	}
	return e
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
	nvme.PutPadded(e.TRSVCID[:], strconv.Itoa(int(addr.Port())))
	_ = nvme.PutText(e.SUBNQN[:], nqn)
	nvme.PutPadded(e.TRADDR[:], addr.Addr().String())
	return e
}
