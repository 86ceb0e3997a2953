package main

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/tests/hostlib"
)

// TestReferralProvider: the entry of another discovery service doesn't claim to know which RDMA its RNIC speaks, which
// may be InfiniBand or iWARP.
func TestReferralProvider(t *testing.T) {
	r := referral(cli.Endpoint{Transport: nvme.TransportRDMA, Addr: netip.MustParseAddrPort("192.0.2.1:8009")})
	e := nvme.DiscoveryEntry{TSAS: r.TSAS}
	if p := e.RDMA(); p != (nvme.TSASRDMA{QPType: nvme.RDMAQPConnected, Provider: nvme.RDMAProviderNone, CMS: nvme.RDMACMS}) {
		t.Errorf("%+v", p)
	}
}

// TestEveryAddress: 0.0.0.0 means every IPv4 address, including self-assigned ones (169.254.0.0/16).
func TestEveryAddress(t *testing.T) {
	var all []net.Addr
	for _, s := range []string{"127.0.0.1/8", "192.0.2.1/24", "169.254.7.1/16", "::1/128", "2001:db8::1/64", "fe80::1/64"} {
		ip, network, err := net.ParseCIDR(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &net.IPNet{IP: ip, Mask: network.Mask})
	}
	for wildcard, want := range map[string][]string{
		"0.0.0.0": {"127.0.0.1", "192.0.2.1", "169.254.7.1"},
		"::":      {"::1", "2001:db8::1"},
	} {
		var got []string
		for _, a := range ofFamily(netip.MustParseAddr(wildcard), all) {
			got = append(got, a.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v", wildcard, got, want)
		}
	}
}

// TestPortRefused: only of a port that needs privileges it is said that it does.
func TestPortRefused(t *testing.T) {
	s := &server{mark: "--"}
	for port, want := range map[uint16]string{80: "need root", 4420: "security module"} {
		e := cli.Endpoint{Transport: nvme.TransportTCP, Addr: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)}
		err := s.listenError(e, os.NewSyscallError("bind", unix.EACCES))
		if !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "need root") != (port < 1024) {
			t.Errorf("port %d: %v, want %q", port, err, want)
		}
	}
}

// TestListenElsewhereInstead: new endpoints are opened before old ones are closed, so an endpoint can't replace
// another that holds its port in one step. The error says that, and doesn't suggest looking for another program.
func TestListenElsewhereInstead(t *testing.T) {
	cfg := &config.Config{Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}}}
	at := freeEndpoint(t)
	s := started(t, cfg, at)
	defer s.close()
	next := s.cfg.Clone()
	next.Listen = []cli.Endpoint{{Transport: at.Transport, Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), at.Addr.Port())}}
	err := s.Apply(next, "")
	if err == nil || !strings.Contains(err.Error(), "the target listens on "+at.String()+",") || strings.Contains(err.Error(), "another nvmetgt") {
		t.Error(err)
	}
}

// TestListedWhileOpen: an endpoint that is taken away leaves the discovery log before it is closed, so that no host is
// sent to where nobody listens.
func TestListedWhileOpen(t *testing.T) {
	s := started(t, &config.Config{Subsystems: []config.Subsystem{{NQN: narrowedNQN}}}, freeEndpoint(t))
	t.Cleanup(s.close)
	looks, err := come(t, s.cfg.Listen[0], staysNQN, func(c *host.Config) { c.SubNQN = nvme.DiscoveryNQN })
	if err != nil {
		t.Fatal(err)
	}
	at := freeEndpoint(t)
	next := s.cfg.Clone()
	next.Listen = append(next.Listen, at)
	if err := s.Apply(next, ""); err != nil {
		t.Fatal(err)
	}
	state := func() (listed, open bool) {
		t.Helper()
		log, err := looks.Discovery(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range log.Entries {
			addr, err := host.EntryAddr(&log.Entries[i])
			listed = listed || err == nil && addr == at.Addr
		}
		_, err = come(t, at, staysNQN)
		return listed, err == nil
	}
	if listed, open := state(); !listed || !open {
		t.Fatalf("a new endpoint is listed: %v, open: %v", listed, open)
	}
	l := s.listeners[at]
	for i, stop := range slices.Backward(l.stops) {
		if err := stop(); err != nil {
			t.Error(err)
		}
		if listed, open := state(); listed && !open {
			t.Errorf("after step %d of %d it is closed, and still listed", len(l.stops)-i, len(l.stops))
		}
	}
	if listed, open := state(); listed || open {
		t.Errorf("an endpoint that is taken away is listed: %v, open: %v", listed, open)
	}
	l.stops = nil // all are done
}

// hanging is a target with a volume that can be made to hang.
type hanging struct {
	*server
	volume blockdev.Volume
}

func newHanging(t *testing.T) *hanging {
	t.Helper()
	s := started(t, &config.Config{Subsystems: []config.Subsystem{{
		NQN: narrowedNQN, Hosts: []string{staysNQN}, Namespaces: []config.Namespace{{NSID: 1, Volume: "freeze:manual:mem:1MiB"}},
	}}}, freeEndpoint(t))
	t.Cleanup(s.close)
	return &hanging{server: s, volume: s.exports[exportKey{narrowedNQN, 1}].volume}
}

// hang connects a host to an endpoint and makes it read from the volume, which then hangs until toggle.
func (h *hanging) hang(t *testing.T, e cli.Endpoint) *hostlib.Host {
	t.Helper()
	host, err := come(t, e, staysNQN)
	if err != nil {
		t.Fatal(err)
	}
	n, err := host.Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	h.toggle(h.volume)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = n.ReadAt(t.Context(), make([]byte, 4096), 0) // it fails, unless the volume answers in time
	}()
	t.Cleanup(func() { <-done })
	if !soon.Until(func() bool { return h.target.Snapshot().Subsystems[0].Namespaces[0].Users > 0 }) {
		h.toggle(h.volume)
		t.Fatal("the read doesn't come to the volume")
	}
	return host
}

// TestUnlistenWhileHanging: an endpoint over which a host has a command in a volume that hangs is taken away from
// hosts at once when it is removed, and other changes can be made in the meantime, such as listening there again.
// It is closed when the volume has answered.
func TestUnlistenWhileHanging(t *testing.T) {
	h := newHanging(t)
	next, _ := h.Config()
	stays := next.Listen[0]
	at := freeEndpoint(t)
	next.Listen = append(next.Listen, at)
	if err := h.Apply(next, ""); err != nil {
		t.Fatal(err)
	}
	host := h.hang(t, at)
	unlistened := make(chan error, 1)
	go func() {
		without := next.Clone()
		without.Listen = []cli.Endpoint{stays}
		unlistened <- h.Apply(without, "")
	}()
	if _, ok := soon.Receive(host.Done()); !ok {
		t.Error("the host is still connected")
	}
	changed := make(chan error, 1)
	go func() { changed <- h.Apply(next.Clone(), "") }()
	if err, ok := soon.Receive(changed); !ok || err != nil {
		t.Errorf("another change is made: %v, %v", ok, err)
	} else if _, err := come(t, at, staysNQN); err != nil {
		t.Errorf("by the endpoint that is there again: %v", err)
	}
	if len(unlistened) > 0 {
		t.Error("removed while its host has something in a volume")
	}
	h.toggle(h.volume)
	if err := <-unlistened; err != nil {
		t.Error(err)
	}
}

// TestDropWhileHanging: a change that fails doesn't wait either for hosts that have connected through its new
// endpoint.
func TestDropWhileHanging(t *testing.T) {
	h := newHanging(t)
	next, _ := h.Config()
	at := freeEndpoint(t)
	next.Listen = append(next.Listen, at)
	st := newStaged()
	if err := errors.Join(h.stage(next, st), h.add(next, st)); err != nil {
		t.Fatal(err)
	}
	host := h.hang(t, at)
	dropped := make(chan error, 1)
	go func() {
		h.change.Lock()
		defer h.change.Unlock()
		dropped <- h.drop(st)
	}()
	if err, ok := soon.Receive(dropped); !ok || err != nil {
		t.Errorf("the change is taken back: %v, %v", ok, err)
	}
	if _, ok := soon.Receive(host.Done()); !ok {
		t.Error("the host is still connected")
	}
	h.toggle(h.volume)
}
