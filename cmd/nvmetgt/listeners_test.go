package main

import (
	"net"
	"net/netip"
	"slices"
	"testing"
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
