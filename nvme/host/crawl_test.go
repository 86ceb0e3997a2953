package host

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// crawlEntry is an entry of a subsystem, or of another discovery service, at 192.0.2.1.
func crawlEntry(subtype nvme.SubsystemType, tt nvme.TransportType, nqn string, port int) (e nvme.DiscoveryEntry) {
	e.TRTYPE, e.SUBTYPE, e.ADRFAM = tt, subtype, nvme.FamilyIPv4
	_ = nvme.PutText(e.SUBNQN[:], nqn)
	_ = nvme.PutText(e.TRADDR[:], "192.0.2.1")
	_ = nvme.PutText(e.TRSVCID[:], strconv.Itoa(port))
	return e
}

// TestCrawl: three services that refer to each other in a circle, to themselves and to one that is gone; each is
// asked once and each subsystem is listed once.
func TestCrawl(t *testing.T) {
	nvm := func(nqn string, port int) nvme.DiscoveryEntry {
		return crawlEntry(nvme.SubsystemNVM, nvme.TransportTCP, nqn, port)
	}
	refer := func(port int) nvme.DiscoveryEntry {
		return crawlEntry(nvme.SubsystemReferral, nvme.TransportTCP, nvme.DiscoveryNQN, port)
	}
	broken := nvm(testNQN, 7)
	_ = nvme.PutText(broken.TRADDR[:], "nowhere")
	services := map[uint16]*fakeTarget{}
	for port, entries := range map[uint16][]nvme.DiscoveryEntry{
		1: {crawlEntry(nvme.SubsystemCurrentDiscovery, nvme.TransportTCP, nvme.DiscoveryNQN, 1), nvm(testNQN, 10), refer(2), refer(9), nvm(testNQN, 10)},
		2: {refer(1), refer(2), refer(3), nvm(testNQN, 10), nvm(testNQN, 11), crawlEntry(nvme.SubsystemNVM, nvme.TransportFC, testNQN, 12)},
		3: {refer(1), nvm(testNQN+"2", 10), broken},
	} {
		f := discoveryTarget(0)
		f.entries = entries
		services[port] = f
	}
	gone := discoveryTarget(0)
	gone.dialErr = errors.New("gone")
	services[9] = gone
	reach := func(e *nvme.DiscoveryEntry) (Config, error) {
		addr, err := EntryAddr(e)
		if err != nil {
			return Config{}, err
		}
		c := services[1].config()
		if s := services[addr.Port()]; s != nil {
			c = s.config()
		}
		c.Remote, c.SubNQN = addr, e.NQN()
		return c, nil
	}
	cfg := services[1].config()
	cfg.Remote, cfg.SubNQN = netip.MustParseAddrPort("192.0.2.1:1"), ""
	found, err := Crawl(t.Context(), cfg, reach)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range found.Entries {
		got = append(got, found.Entries[i].NQN()+" "+found.Entries[i].Service())
	}
	if want := []string{testNQN + " 10", testNQN + " 11", testNQN + "2 10"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if len(found.Services) != 3 || len(found.Unreached) != 2 || !errors.Is(found.Unreached[0], gone.dialErr) && !errors.Is(found.Unreached[1], gone.dialErr) {
		t.Errorf("%d services, unreached: %v", len(found.Services), found.Unreached)
	}
	for port, s := range services {
		if port != 9 && len(s.queues) != 1 {
			t.Errorf("service %d was asked %d times", port, len(s.queues))
		}
	}
	services[1].dialErr = gone.dialErr
	if _, err := Crawl(t.Context(), cfg, reach); !errors.Is(err, gone.dialErr) {
		t.Errorf("the first is gone: %v", err)
	}
}

// TestCrawlLink: link-local addresses get the link that they were read over, whatever the target calls it.
func TestCrawlLink(t *testing.T) {
	at := func(addr string, subtype nvme.SubsystemType) nvme.DiscoveryEntry {
		e := crawlEntry(subtype, nvme.TransportTCP, testNQN, 10)
		_ = nvme.PutText(e.TRADDR[:], addr)
		return e
	}
	for from, want := range map[string][]string{
		"[fe80::9%eth0]:1": {"fe80::1%eth0", "fe80::2%eth0", "2001:db8::1", "192.0.2.1"},
		"[2001:db8::9]:1":  {"fe80::1%enp1s0", "fe80::2", "2001:db8::1", "192.0.2.1"},
	} {
		f := discoveryTarget(0)
		for _, a := range []string{"fe80::1%enp1s0", "fe80::2", "2001:db8::1", "192.0.2.1"} {
			f.entries = append(f.entries, at(a, nvme.SubsystemNVM))
		}
		cfg := f.config()
		cfg.Remote, cfg.SubNQN = netip.MustParseAddrPort(from), ""
		found, err := Crawl(t.Context(), cfg, func(e *nvme.DiscoveryEntry) (Config, error) {
			c := f.config()
			addr, err := EntryAddr(e)
			c.Remote, c.SubNQN = addr, e.NQN()
			return c, err
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range found.Entries {
			got = append(got, found.Entries[i].Address())
		}
		if !slices.Equal(got, want) {
			t.Errorf("from %s: %q, want %q", from, got, want)
		}
	}
}

// TestCrawlInterrupted: a caller that gives up while the last controller is being closed still gets its log.
func TestCrawlInterrupted(t *testing.T) {
	f := discoveryTarget(0)
	f.entries = []nvme.DiscoveryEntry{crawlEntry(nvme.SubsystemNVM, nvme.TransportTCP, testNQN, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	f.hook = func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCPropertySet && nvme.CC(r.Cmd.PropertyValue()).Shutdown() != nvme.CCSHNNone {
			cancel()
		}
		return usual
	}
	found, err := Crawl(ctx, f.config(), func(*nvme.DiscoveryEntry) (Config, error) { return f.config(), nil })
	if ctx.Err() == nil {
		t.Error("the controller was not shut down")
	}
	if err != nil || found == nil {
		t.Errorf("Crawl returned %v, %v", found, err)
	}
}

// TestCrawlConfig: a configuration that can't be used is an error before anything is done with it.
func TestCrawlConfig(t *testing.T) {
	if _, err := Crawl(t.Context(), Config{}, nil); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

// TestCrawlSilence: many services that don't answer take only a few times as long as one, and the errors about
// them, and about entries that lead nowhere, are bounded.
func TestCrawlSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, silent := discoveryTarget(0), discoveryTarget(0)
		for i := range 2 * maxServices {
			first.entries = append(first.entries, crawlEntry(nvme.SubsystemReferral, nvme.TransportTCP, nvme.DiscoveryNQN, 100+i))
		}
		for range 2 * maxUnreached {
			first.entries = append(first.entries, crawlEntry(nvme.SubsystemNVM, nvme.TransportTCP, testNQN, 0))
		}
		first.entries = append(first.entries, crawlEntry(nvme.SubsystemNVM, nvme.TransportTCP, testNQN, 1))
		silent.hook = func(*fakeQueue, *Request, *nvme.Completion) verdict { return never }
		at := time.Now()
		found, err := Crawl(t.Context(), first.config(), func(e *nvme.DiscoveryEntry) (Config, error) {
			addr, err := EntryAddr(e)
			c := silent.config()
			c.Remote, c.SubNQN, c.ConnectTimeout = addr, e.NQN(), time.Second
			return c, err
		})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(at); took > (maxServices/askedAtOnce+1)*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(found.Entries) != 1 || len(found.Unreached) != maxUnreached || len(silent.queues) != maxServices-1 { // and the first one
			t.Errorf("%d entries, %d unreached, %d asked", len(found.Entries), len(found.Unreached), len(silent.queues))
		}
	})
}

// TestCrawlEndless: services that list more and more subsystems, and refer to more and more services, make the host
// remember no more entries than one log may have, and ask no more services than usual.
func TestCrawlEndless(t *testing.T) {
	tr := newFakeTarget()
	reach := func(e *nvme.DiscoveryEntry) (Config, error) {
		addr, err := EntryAddr(e)
		return Config{Transport: tr, Remote: addr, SubNQN: e.NQN()}, err
	}
	found, known := &Found{}, map[place]bool{{}: true}
	ask := 1
	for service := range 3 {
		log := &DiscoveryLog{}
		for i := range maxDiscoveryEntries / 2 {
			nqn := testNQN + strconv.Itoa(service*maxDiscoveryEntries+i)
			log.Entries = append(log.Entries, crawlEntry(nvme.SubsystemNVM, nvme.TransportTCP, nqn, 1), crawlEntry(nvme.SubsystemReferral, nvme.TransportTCP, nqn, 2))
		}
		ask += len(found.follow(log, &Config{}, known, reach))
	}
	if len(found.Entries) != maxDiscoveryEntries || len(known) != maxServices+maxDiscoveryEntries || ask != maxServices {
		t.Errorf("%d entries, %d places, %d services to ask", len(found.Entries), len(known), ask)
	}
	if len(found.Unreached) == 0 || !errors.Is(found.Unreached[0], ErrController) {
		t.Errorf("unreached: %v", errors.Join(found.Unreached...))
	}
}
