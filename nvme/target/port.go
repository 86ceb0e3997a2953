package target

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Port is an address at which hosts reach the target, as the discovery log describes it. The transport's listener
// accepts the connections.
type Port struct {
	ID        uint16 // PORTID; 0: the lowest one that is free
	Transport nvme.TransportType
	// Addr is where the transport listens. If its address is unspecified (0.0.0.0 or ::), each host is told the address
	// at which it reached the target.
	Addr netip.AddrPort
	// Secure demands a secure channel (TREQ): TLS.
	Secure bool
	// TSAS is the Transport Specific Address Subtype, filled in by the transport.
	TSAS [256]byte
	// Unlisted keeps the port out of the discovery log until ListPort, while its ANA states already hold: whoever sets
	// them before the transport listens lets no host in without them, and tells none of a port that isn't open yet.
	Unlisted bool

	ana *anaStates // under Target.mu
}

// Validate reports what is wrong with p.
func (p *Port) Validate() error {
	if p.Transport != nvme.TransportRDMA && p.Transport != nvme.TransportTCP && p.Transport != nvme.TransportLoop {
		return configError("port %s: transport %s isn't one of rdma, tcp", p.Addr, p.Transport)
	}
	if !p.Addr.IsValid() {
		return configError("port has no address")
	}
	return nil
}

// addressFor returns the address at which a host that reached the target at local can also reach p; false if it can't,
// judging by the addresses.
func (p *Port) addressFor(local netip.Addr) (netip.Addr, bool) {
	a := p.Addr.Addr().Unmap()
	local = local.Unmap()
	switch {
	case !a.IsUnspecified():
		// A loopback listener serves only hosts that came by loopback.
		return a, !a.IsLoopback() || !local.IsValid() || local.IsLoopback()
	case !local.IsValid():
		return a, false
	case a.Is4() && !local.Is4():
		return a, false
	}
	return local, true // :: takes IPv4 as well
}

// AddPort adds a port, and to the discovery log unless it is unlisted, until RemovePort: a target doesn't know who
// listens. Hosts that asked for notices are told. The error is ErrConfig, ErrExists, or ErrClosed.
func (t *Target) AddPort(p Port) error {
	if err := p.Validate(); err != nil {
		return err
	}
	t.mu.Lock()
	if err := t.addPort(p); err != nil {
		t.mu.Unlock()
		return err
	}
	told := t.spreadANA()
	t.mu.Unlock()
	t.portsChanged(told, !p.Unlisted)
	return nil
}

// portsChanged tells hosts that a port came or went: those that asked for changes of the discovery log, if it was
// listed, and those whose port is now another one, with ANA states of its own.
func (t *Target) portsChanged(ana []*controller, listed bool) {
	for _, c := range ana {
		deliver(c.tell(eventANA))
	}
	if listed {
		t.discoveryChanged()
	}
}

// ListPort puts a port into the discovery log or takes it out, and tells hosts that asked for notices. It remains the
// port of its address, with its ANA states. The error is ErrNotFound.
func (t *Target) ListPort(transport nvme.TransportType, addr netip.AddrPort, listed bool) error {
	t.mu.Lock()
	i := t.findPort(transport, addr)
	if i < 0 {
		t.mu.Unlock()
		return noPort(transport, addr)
	}
	changed := t.ports[i].Unlisted == listed
	if changed {
		t.ports[i].Unlisted = !listed
		t.generation++
	}
	t.mu.Unlock()
	t.portsChanged(nil, changed)
	return nil
}

// noPort is the error for an address without a port.
func noPort(transport nvme.TransportType, addr netip.AddrPort) error {
	return fmt.Errorf("target: port %s %s %w", transport, addr, ErrNotFound)
}

// addPort is called with mu held.
func (t *Target) addPort(p Port) error {
	if t.closed {
		return ErrClosed
	}
	if t.findPort(p.Transport, p.Addr) >= 0 {
		return fmt.Errorf("target: port %s %s %w", p.Transport, p.Addr, ErrExists)
	}
	if p.ID == 0 {
		for p.ID = 1; t.portByID(p.ID) != nil; p.ID++ {
		}
	} else if t.portByID(p.ID) != nil {
		return fmt.Errorf("target: port %d %w", p.ID, ErrExists)
	}
	p.ana = new(anaStates)
	t.totals(p.Transport) // counters exist from the start, for monitoring that looks for increases
	t.ports = append(t.ports, p)
	if !p.Unlisted {
		t.generation++
	}
	return nil
}

// findPort returns the index of the port with this very address; -1 if there is none. Called with mu held.
func (t *Target) findPort(transport nvme.TransportType, addr netip.AddrPort) int {
	return slices.IndexFunc(t.ports, func(p Port) bool { return p.Transport == transport && p.Addr == addr })
}

// PortID returns the identifier of the port at an address. The error is ErrNotFound.
func (t *Target) PortID(transport nvme.TransportType, addr netip.AddrPort) (uint16, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.findPort(transport, addr)
	if i < 0 {
		return 0, noPort(transport, addr)
	}
	return t.ports[i].ID, nil
}

// portID returns the identifier of the port that the host connected to; 0 if that isn't known.
func (c *controller) portID() uint16 {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if p := c.t.portAt(c.attr.Transport, c.attr.Local); p != nil {
		return p.ID
	}
	return 0
}

// portByID finds a port; nil if there is none. Called with mu held.
func (t *Target) portByID(id uint16) *Port {
	for i := range t.ports {
		if t.ports[i].ID == id {
			return &t.ports[i]
		}
	}
	return nil
}

// portAt finds the port of a local address: the one that listens there, or else one that listens on all addresses,
// preferably those of its family; nil if there is none. Called with mu held.
func (t *Target) portAt(transport nvme.TransportType, local netip.AddrPort) *Port {
	var wild *Port
	for i := range t.ports {
		p := &t.ports[i]
		switch a := p.Addr.Addr().Unmap(); {
		case p.Transport != transport || p.Addr.Port() != local.Port():
		case a == local.Addr().Unmap():
			return p
		case a.IsUnspecified() && (wild == nil || a.Is4() == local.Addr().Unmap().Is4()):
			wild = p
		}
	}
	return wild
}

// RemovePort removes a port, also from the discovery log, and tells hosts that asked for notices. Hosts that are still
// connected there keep its ANA states, unless another port listens on their address, too. The error is ErrNotFound.
func (t *Target) RemovePort(transport nvme.TransportType, addr netip.AddrPort) error {
	t.mu.Lock()
	i := t.findPort(transport, addr)
	if i < 0 {
		t.mu.Unlock()
		return noPort(transport, addr)
	}
	listed := !t.ports[i].Unlisted
	t.ports = append(t.ports[:i:i], t.ports[i+1:]...)
	if listed {
		t.generation++
	}
	told := t.spreadANA()
	t.mu.Unlock()
	t.portsChanged(told, listed)
	return nil
}
