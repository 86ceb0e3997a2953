package main

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestLookUp: names are looked up; addresses, and what was meant to be one, are left to be checked as such.
func TestLookUp(t *testing.T) {
	for _, addr := range []string{"", "192.0.2.1", "192.0.2.300", "::1", "fe80::1%eth0", "fe80::g"} {
		f := &connFlags{traddr: addr, timeout: time.Second}
		if err := f.lookUp(t.Context()); err != nil || f.traddr != addr {
			t.Errorf("%q became %q, %v", addr, f.traddr, err)
		}
	}
	for _, name := range []string{"localhost", "nvme-1", "storage.example.org", "1host"} {
		if !isName(name) {
			t.Errorf("%q isn't taken for a name", name)
		}
	}
	four, six, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	if a := preferred([]netip.Addr{six, four}); a != four {
		t.Errorf("%v before %v", a, four)
	}
	if a := preferred([]netip.Addr{four, netip.MustParseAddr("192.0.2.2"), six}); a != four {
		t.Errorf("%v before %v", a, four)
	}
	if a := preferred([]netip.Addr{six, other}); a != six {
		t.Errorf("%v before %v", a, six)
	}
}

// TestLookUpLocal: of the addresses of a name, one is taken that the address of -w can reach.
func TestLookUpLocal(t *testing.T) {
	for local, network := range map[string]string{"127.0.0.1": "ip4", "::ffff:127.0.0.1": "ip4", "::1": "ip6"} {
		if all, err := net.DefaultResolver.LookupNetIP(t.Context(), network, "localhost"); err != nil || len(all) == 0 {
			t.Logf("localhost has no address of %s", network)
			continue
		}
		f := &connFlags{traddr: "localhost", hostTraddr: local, timeout: time.Second}
		err := f.lookUp(t.Context())
		if a, bad := netip.ParseAddr(f.traddr); err != nil || bad != nil || a.Is4() != (network == "ip4") {
			t.Errorf("-w %s: localhost became %s, %v", local, f.traddr, err)
		}
	}
}
