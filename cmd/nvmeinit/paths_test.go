package main

import (
	"net/netip"
	"testing"
)

// TestReaches: what is reached from the address of an open RNIC needs no other one.
func TestReaches(t *testing.T) {
	for _, c := range []struct {
		open        string
		within      bool // it was opened for an address of this host
		dst, source string
		want        bool
	}{
		{"192.0.2.2", false, "192.0.2.9", "192.0.2.2", true},
		{"192.0.2.2", false, "198.51.100.9", "198.51.100.2", false},
		{"127.1.2.3", true, "127.0.0.1", "127.0.0.1", true},
		{"127.1.2.3", true, "192.0.2.2", "192.0.2.2", true},
		{"127.1.2.3", true, "192.0.2.9", "192.0.2.2", false},
		{"127.1.2.3", true, "::1", "::1", false},
		{"::1", true, "fd00::2", "fd00::2", true},
		{"fd00::2", true, "::1", "::1", true},
		{"fd00::2", true, "fd00::2", "fd00::2", false},
		{"192.0.2.2", false, "127.0.0.1", "127.0.0.1", false},
	} {
		fab := &fabric{local: netip.MustParseAddr(c.open), within: c.within}
		if got := fab.reaches(netip.MustParseAddr(c.dst), netip.MustParseAddr(c.source)); got != c.want {
			t.Errorf("%s from %s (%v): %v", c.dst, c.open, c.within, got)
		}
	}
}
