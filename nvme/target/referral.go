package target

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Referral is another discovery service, to which the discovery log refers hosts.
type Referral struct {
	Transport nvme.TransportType
	Addr      netip.AddrPort
	NQN       string // name of its discovery subsystem; empty: the well-known one
	Secure    bool   // it demands a secure channel: TLS
	// TSAS is the Transport Specific Address Subtype, as for a Port.
	TSAS [256]byte
}

// Validate reports what is wrong with r.
func (r *Referral) Validate() error {
	if r.Transport != nvme.TransportRDMA && r.Transport != nvme.TransportTCP {
		return configError("referral %s: transport %s isn't one of rdma, tcp", r.Addr, r.Transport)
	}
	if !r.Addr.IsValid() || r.Addr.Addr().IsUnspecified() || r.Addr.Port() == 0 {
		return configError("referral: %s isn't an address and port that hosts can reach", r.Addr)
	}
	if r.NQN != "" {
		if err := nvme.CheckNQN(r.NQN); err != nil {
			return configError("referral %s: %v", r.Addr, err)
		}
	}
	return nil
}

func (r *Referral) entry() *nvme.DiscoveryEntry {
	addr := netip.AddrPortFrom(r.Addr.Addr().Unmap(), r.Addr.Port())
	e := discoveryEntry(r.Transport, addr, r.Secure, cmp.Or(r.NQN, nvme.DiscoveryNQN))
	e.SUBTYPE, e.TSAS = nvme.SubsystemReferral, r.TSAS
	return e
}

// AddReferral adds a referral to the discovery log. The error is ErrConfig, ErrExists, or ErrClosed.
func (t *Target) AddReferral(r Referral) error {
	if err := r.Validate(); err != nil {
		return err
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	if t.findReferral(r.Transport, r.Addr) >= 0 {
		t.mu.Unlock()
		return fmt.Errorf("target: referral %s %s %w", r.Transport, r.Addr, ErrExists)
	}
	t.referrals = append(t.referrals, r)
	t.generation++
	t.mu.Unlock()
	t.discoveryChanged()
	return nil
}

// RemoveReferral removes a referral from the discovery log. The error is ErrNotFound.
func (t *Target) RemoveReferral(transport nvme.TransportType, addr netip.AddrPort) error {
	t.mu.Lock()
	i := t.findReferral(transport, addr)
	if i < 0 {
		t.mu.Unlock()
		return fmt.Errorf("target: referral %s %s %w", transport, addr, ErrNotFound)
	}
	t.referrals = append(t.referrals[:i:i], t.referrals[i+1:]...)
	t.generation++
	t.mu.Unlock()
	t.discoveryChanged()
	return nil
}

// findReferral returns the index of the referral to an address; -1 if there is none. Called with mu held.
func (t *Target) findReferral(transport nvme.TransportType, addr netip.AddrPort) int {
	return slices.IndexFunc(t.referrals, func(r Referral) bool { return r.Transport == transport && r.Addr == addr })
}
