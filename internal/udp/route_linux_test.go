package udp

import (
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLocal: all addresses of this host's interfaces are here, and another host's isn't. Those on a link may be another
// link's, too.
func TestLocal(t *testing.T) {
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range interfaces {
		addrs, err := x.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			here := netip.MustParsePrefix(a.String()).Addr()
			if x.Flags&net.FlagUp != 0 {
				wantLocal(t, here, uint32(x.Index), true, !here.IsLinkLocalUnicast())
			}
		}
	}
	for _, other := range []string{"192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "169.254.9.8", "fe80::9:8"} {
		wantLocal(t, netip.MustParseAddr(other), 0, false, false)
	}
	for _, own := range []string{"127.0.0.1", "127.200.3.4", "::ffff:127.0.0.1", "::1"} {
		wantLocal(t, netip.MustParseAddr(own), 0, true, true)
	}
}

// wantLocal checks what the memory of neighbors asks, and who leaves checksums out.
func wantLocal(t *testing.T, addr netip.Addr, scope uint32, neighbor, host bool) {
	t.Helper()
	if got := isHere(addr, scope); got != neighbor {
		t.Errorf("%v: here %v, want %v", addr, got, neighbor)
	}
	if got := OnThisHost(addr); got != host {
		t.Errorf("%v: on this host %v, want %v", addr, got, host)
	}
}

// TestLocalUnknown: where no socket is to be had, memory that is shared stays shared, and checksums aren't left out.
func TestLocalUnknown(t *testing.T) {
	if !inNetns(t) { // a process of its own
		return
	}
	own := netip.MustParseAddr("192.0.2.1")
	addresses(t, "link set lo up", "addr add 192.0.2.1/32 dev lo")
	wantLocal(t, own, 0, true, true)
	var limit unix.Rlimit
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	wantLocal(t, own, 0, true, false)
}

// TestLocalButRouted: an address of this host to which rules lead out of it, as where two of its ports are connected by
// a cable, is beyond the cable.
func TestLocalButRouted(t *testing.T) {
	if !inNetns(t) {
		return
	}
	own := netip.MustParseAddr("192.0.2.1")
	openTun(t, netip.MustParsePrefix("198.51.100.1/24"))
	addresses(t, "addr add 192.0.2.1/32 dev lo")
	wantLocal(t, own, 0, true, true)
	addresses(t, "route add 192.0.2.1 dev wire0 table 77", "rule add pref 1 to 192.0.2.1 lookup 77",
		"rule add pref 2 lookup local", "rule del pref 0")
	wantLocal(t, own, 0, false, false)
}

// addresses has ip change the network.
func addresses(t *testing.T, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			t.Skipf("ip %s: %v %s", c, err, out)
		}
	}
}
