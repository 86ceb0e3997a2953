package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestLocal: all addresses of this host's interfaces are here, and another host's isn't. Link-local ones may be on
// another link, too.
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

// wantLocal checks the answers for shared memory (isHere) and for leaving out checksums (OnThisHost).
func wantLocal(t *testing.T, addr netip.Addr, scope uint32, neighbor, host bool) {
	t.Helper()
	if got := isHere(addr, scope); got != neighbor {
		t.Errorf("%v: here %v, want %v", addr, got, neighbor)
	}
	if got := OnThisHost(addr); got != host {
		t.Errorf("%v: on this host %v, want %v", addr, got, host)
	}
}

// TestLocalUnknown: if no socket can be opened, memory that is shared stays shared, and checksums aren't left out.
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

// TestLocalButRouted: an address of this host to which rules lead off the host, as when two of its ports are connected
// by a cable, is not local.
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

// TestPathMTU: the MTU of a path is the current one of its interface, unless a route or a router says less. A socket
// doesn't take a router's word for it.
func TestPathMTU(t *testing.T) {
	if !inNetns(t) {
		return
	}
	own, neighbor, beyond := netip.MustParseAddr("10.77.0.1"), netip.MustParseAddrPort("10.77.0.2:4791"), netip.MustParseAddrPort("192.0.2.1:4791")
	w := openTun(t, netip.PrefixFrom(own, 24))
	want := func(when string, dst netip.AddrPort, mtu int) {
		t.Helper()
		if got, err := PathMTU(own, dst); err != nil || got != mtu {
			t.Errorf("%s to %v: %d, %v; want %d", when, dst, got, err, mtu)
		}
	}
	addresses(t, "route add default via 10.77.0.2 mtu 3000")
	want("at first", neighbor, wireMTU)
	want("by a route", beyond, 3000)
	c := listen(t, own, Config{})
	if n, err := c.Send([]Train{trainOf(beyond, pattern(2000, 1), 2000)}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	// A router says that 1400 bytes are what its next link carries (RFC 1191).
	sent := w.udpPacket(t)
	icmp := append([]byte{3, 4, 0, 0, 0, 0, 1400 >> 8, 1400 & 0xff}, sent[:28]...)
	binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))
	p := []byte{0x45, 0, 0, byte(20 + len(icmp)), 0, 0, 0, 0, 64, unix.IPPROTO_ICMP, 0, 0}
	p = append(append(p, neighbor.Addr().AsSlice()...), own.AsSlice()...)
	binary.BigEndian.PutUint16(p[10:], checksum(p))
	if _, err := w.Write(append(p, icmp...)); err != nil {
		t.Fatal(err)
	}
	soon.Until(func() bool { mtu, _ := PathMTU(own, beyond); return mtu == 1400 })
	want("after ICMP", beyond, 1400)
	// Somebody else may have forged that: the socket sends what it sent before.
	if n, err := c.Send([]Train{trainOf(beyond, pattern(2000, 1), 2000)}); n != 1 || err != nil || c.Counters().TxDrops.Load() != 0 {
		t.Errorf("after ICMP: took %d, %v; %d dropped", n, err, c.Counters().TxDrops.Load())
	} else if p := w.udpPacket(t); len(p) != 2028 {
		t.Errorf("after ICMP a packet of %d bytes left", len(p))
	}
	addresses(t, "link set wire0 mtu 1300")
	want("lowered", neighbor, 1300)
	addresses(t, "route del default", "link set wire0 down")
	if got, err := PathMTU(own, beyond); err == nil {
		t.Errorf("without a way: %d", got)
	}
}

// checksum is that of the Internet (RFC 1071) of an even number of bytes.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for ; len(b) > 0; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
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
