package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

const (
	// maxServices bounds how many discovery controllers Crawl asks, whatever they refer to.
	maxServices = 64
	// askedAtOnce is how many of them are asked at once: each that is silent costs the whole of
	// Config.ConnectTimeout.
	askedAtOnce = 16
	// maxUnreached bounds the errors that their entries can cause.
	maxUnreached = 2 * maxServices
)

// Found is what Crawl found.
type Found struct {
	// Entries are the entries of NVM subsystems, each once, and up to as many as one discovery log may have.
	Entries []nvme.DiscoveryEntry
	// Services are the discovery controllers that answered, the first one first.
	Services []Config
	// Unreached says which other services did not answer and which entries can't be reached, up to 128 in total.
	Unreached []error
}

// Reach returns the configuration for connecting to an entry of a discovery log: its transport, addresses and
// SubNQN. An error that matches ErrUnsupported makes Crawl skip the entry.
type Reach func(e *nvme.DiscoveryEntry) (Config, error)

// Crawl asks the discovery controller that cfg describes, those that it refers to, and so on. The error is that of
// the first one; failing to reach another one is not an error.
func Crawl(ctx context.Context, cfg Config, reach Reach) (*Found, error) {
	cfg.SubNQN = cmp.Or(cfg.SubNQN, nvme.DiscoveryNQN)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &Found{}
	known := map[place]bool{placeOf(&cfg): true}
	for ask := []Config{cfg}; len(ask) > 0; {
		asked := ask[:min(len(ask), askedAtOnce)]
		ask = ask[len(asked):]
		logs, errs := discoverAll(ctx, asked)
		for i, log := range logs {
			if log == nil {
				if len(f.Services) == 0 || ctx.Err() != nil {
					return nil, errs[i]
				}
				f.unreached(errs[i])
				continue
			}
			f.Services = append(f.Services, asked[i])
			ask = append(ask, f.follow(log, &asked[i], known, reach)...)
		}
	}
	return f, nil
}

// discoverAll asks several discovery controllers at once. A controller that could not be asked has a nil log and an
// error.
func discoverAll(ctx context.Context, asked []Config) ([]*DiscoveryLog, []error) {
	logs, errs := make([]*DiscoveryLog, len(asked)), make([]error, len(asked))
	var all sync.WaitGroup
	for i := range asked {
		all.Go(func() { logs[i], errs[i] = Discover(ctx, asked[i]) })
	}
	all.Wait()
	return logs, errs
}

// follow records the log of a service, and returns the services that it refers to and that should be asked.
func (f *Found) follow(log *DiscoveryLog, by *Config, known map[place]bool, reach Reach) (ask []Config) {
	for i := range log.Entries {
		if len(f.Entries) == maxDiscoveryEntries {
			f.unreached(fmt.Errorf("nvme: discovery: %w: there are more than %d entries, and the rest is left out", ErrController, maxDiscoveryEntries))
			return nil
		}
		putZone(&log.Entries[i], by.Remote.Addr().Zone())
		next, err := f.take(&log.Entries[i], known, reach)
		if err != nil {
			f.unreached(err)
		}
		if next != nil {
			ask = append(ask, *next)
		}
	}
	return ask
}

func (f *Found) unreached(err error) {
	if len(f.Unreached) < maxUnreached {
		f.Unreached = append(f.Unreached, err)
	}
}

// take records an entry that isn't known yet; if the entry refers to another service, take returns that instead.
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
	services := len(known) - len(f.Entries)
	if known[p] || e.SUBTYPE == nvme.SubsystemReferral && services == maxServices {
		return nil, nil
	}
	known[p] = true
	if e.SUBTYPE == nvme.SubsystemReferral {
		return &cfg, nil
	}
	f.Entries = append(f.Entries, *e)
	return nil, nil
}

// putZone puts a link-local address of an entry on the link that the entry was read over: zone, if that address was
// link-local too. A zone in the entry is the target's own name for the link, which means nothing here (RFC 4007,
// section 6).
func putZone(e *nvme.DiscoveryEntry, zone string) {
	if addr, err := netip.ParseAddr(e.Address()); err == nil && zone != "" && addr.IsLinkLocalUnicast() && addr.Is6() {
		_ = nvme.PutText(e.TRADDR[:], addr.WithZone(zone).String()) // a zone is an interface's name, and short
	}
}

// place identifies an entry of a discovery log: entries with the same place are the same.
type place struct {
	transport nvme.TransportType
	remote    netip.AddrPort
	subNQN    string
}

func placeOf(c *Config) place { return place{c.Transport.Type(), c.Remote, c.SubNQN} }

// EntryAddr returns the address of a discovery log entry for RDMA or TCP over IP.
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
