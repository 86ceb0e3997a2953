package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// maxServices bounds how many discovery controllers Crawl asks, however they refer to others.
const maxServices = 64

// Found is what Crawl found.
type Found struct {
	// Entries are those of NVM subsystems, each once.
	Entries []nvme.DiscoveryEntry
	// Services are the discovery controllers that answered, the first one first.
	Services []Config
	// Unreached says which that were referred to did not.
	Unreached []error
}

// Reach makes the configuration by which an entry of a discovery log is reached: its transport,
// addresses and SubNQN. An error that matches ErrUnsupported leaves the entry out.
type Reach func(e *nvme.DiscoveryEntry) (Config, error)

// Crawl asks the discovery controller that cfg describes, those that it refers to, and so on.
// The error is that of the first one; that another can't be reached is no failure.
func Crawl(ctx context.Context, cfg Config, reach Reach) (*Found, error) {
	if cfg.SubNQN == "" {
		cfg.SubNQN = nvme.DiscoveryNQN
	}
	f := &Found{}
	known := map[place]bool{placeOf(&cfg): true}
	for ask := []Config{cfg}; len(ask) > 0; ask = ask[1:] {
		log, err := Discover(ctx, ask[0])
		if err != nil {
			if len(f.Services) == 0 || ctx.Err() != nil {
				return nil, err
			}
			f.Unreached = append(f.Unreached, err)
			continue
		}
		f.Services = append(f.Services, ask[0])
		for i := range log.Entries {
			putZone(&log.Entries[i], ask[0].Remote.Addr().Zone())
			next, err := f.take(&log.Entries[i], known, reach)
			if err != nil {
				f.Unreached = append(f.Unreached, err)
			}
			if next != nil && len(known) < maxServices+len(f.Entries) {
				ask = append(ask, *next)
			}
		}
	}
	return f, nil
}

// take enters an entry that isn't known yet; one that refers to another service is returned.
func (f *Found) take(e *nvme.DiscoveryEntry, known map[place]bool, reach Reach) (*Config, error) {
	if e.SUBTYPE != nvme.SubsystemNVM && e.SUBTYPE != nvme.SubsystemReferral {
		return nil, nil
	}
	cfg, err := reach(e)
	if errors.Is(err, ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("nvme: discovery entry %s://%s:%s: %w", e.TRTYPE, e.Address(), e.Service(), err)
	}
	// A referral may name a discovery service by its well-known name or by one of its own.
	p := placeOf(&cfg)
	if known[p] {
		return nil, nil
	}
	known[p] = true
	if e.SUBTYPE == nvme.SubsystemReferral {
		return &cfg, nil
	}
	f.Entries = append(f.Entries, *e)
	return nil, nil
}

// putZone has a link-local address of an entry be on the link on which the entry was read, which is zone where that was
// link-local too. A zone in the entry is what the target calls the link, which says nothing here (RFC 4007, section 6).
func putZone(e *nvme.DiscoveryEntry, zone string) {
	if addr, err := netip.ParseAddr(e.Address()); err == nil && zone != "" && addr.IsLinkLocalUnicast() && addr.Is6() {
		_ = nvme.PutText(e.TRADDR[:], addr.WithZone(zone).String()) // a zone is an interface's name, and short
	}
}

// place is what makes two entries of discovery logs the same.
type place struct {
	transport nvme.TransportType
	remote    netip.AddrPort
	subNQN    string
}

func placeOf(c *Config) place { return place{c.Transport.Type(), c.Remote, c.SubNQN} }

// EntryAddr is the address of a discovery log entry of RDMA or TCP over IP.
func EntryAddr(e *nvme.DiscoveryEntry) (netip.AddrPort, error) {
	if e.TRTYPE != nvme.TransportRDMA && e.TRTYPE != nvme.TransportTCP {
		return netip.AddrPort{}, fmt.Errorf("%w: transport type %d", ErrUnsupported, e.TRTYPE)
	}
	addr, err := netip.ParseAddr(e.Address())
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: TRADDR %q is not an IP address", ErrController, e.Address())
	}
	port, err := strconv.ParseUint(e.Service(), 10, 16)
	if err != nil || port == 0 {
		return netip.AddrPort{}, fmt.Errorf("%w: TRSVCID %q is not a port", ErrController, e.Service())
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
}
