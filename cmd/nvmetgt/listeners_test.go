package main

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
)

// TestEveryAddress: 0.0.0.0 is every IPv4 address, one that a machine gave itself (169.254.0.0/16) too.
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

// TestListenElsewhereInstead: new endpoints are opened before old ones are closed, so one that takes the place of another
// can't be had in one step where that has its port. Who tries is told that, and not to look for another program.
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
