package udp

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// NotLocalRemedy says what to do if no socket can be bound to an address.
func NotLocalRemedy(addr netip.Addr) string {
	if _, err := interfaceMTU(addr); err == nil && !addr.IsLoopback() {
		return "not yet, if `ip address` calls it tentative, or only in its VRF, where `ip vrf exec` starts programs"
	}
	return otherRemedy
}

const otherRemedy = "use an address that `ip address` shows, or one of 127.0.0.0/8"

// SourceFor returns the local address that the routing table picks for datagrams to dst.
func SourceFor(dst netip.Addr) (netip.Addr, error) {
	// Connecting a UDP socket looks up the route and sends nothing, so any port will do.
	peer := netip.AddrPortFrom(dst, 9)
	s, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(peer))
	if err != nil {
		e := &OpError{Op: "route", Addr: netip.AddrPortFrom(dst, 0), Err: err}
		if !short(err) {
			e.Remedy = "no route from here: check the address and `ip route get`"
		}
		return netip.Addr{}, e
	}
	defer func() { _ = s.Close() }()
	return s.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// Beside returns the other IPv6 addresses of this host, from which dst, also an address of this host, can be reached.
// Those of the first interface, which has ::1, come first.
func Beside(dst netip.Addr) (others []netip.Addr, err error) {
	if dst.IsLinkLocalUnicast() { // it is reached from itself
		return nil, nil
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, interfaceError(dst, err)
	}
	for _, a := range own {
		p, err := netip.ParsePrefix(a.String())
		if at := p.Addr(); err == nil && at.Is6() && at != dst && !at.IsLinkLocalUnicast() {
			others = append(others, at)
		}
	}
	return others, nil
}

// interfaceMTU returns the MTU, in bytes of IP packet, of the interface that has the address. An interface that is down
// has none, but a socket can be bound to its addresses.
func interfaceMTU(addr netip.Addr) (int, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return 0, interfaceError(addr, err)
	}
	covering := 0
	var unknown error // why some interface's addresses aren't known
	for i := range ifs {
		addrs, err := ifs[i].Addrs()
		if err != nil {
			unknown = err
			continue
		}
		for _, a := range addrs {
			p, ok := a.(*net.IPNet)
			if !ok || addr.Zone() != "" && addr.Zone() != ifs[i].Name && addr.Zone() != fmt.Sprint(ifs[i].Index) {
				continue
			}
			own, _ := netip.AddrFromSlice(p.IP)
			if own.Unmap() == addr.WithZone("") {
				return ifs[i].MTU, nil
			}
			// All of 127.0.0.0/8 is local, though only 127.0.0.1 is listed.
			if addr.IsLoopback() && ifs[i].Flags&net.FlagLoopback != 0 {
				covering = ifs[i].MTU
			}
		}
	}
	switch {
	case covering != 0:
		return covering, nil
	case unknown != nil:
		return 0, interfaceError(addr, unknown)
	case addr.IsLoopback():
		return 0, &OpError{Op: "listen", Addr: netip.AddrPortFrom(addr, 0), Err: errors.New("the loopback interface is down"),
			Remedy: "bring it up, as by `ip link set lo up`"}
	}
	return 0, &OpError{Op: "listen", Addr: netip.AddrPortFrom(addr, 0), Kind: ErrNotLocal, Remedy: otherRemedy}
}

// short reports whether an error is that the system is short of something, which tells nothing about an address.
func short(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS)
}

// interfaceError is the error where the system doesn't say which interfaces and addresses there are.
func interfaceError(addr netip.Addr, err error) error {
	e := &OpError{Op: "find the interface of", Addr: netip.AddrPortFrom(addr, 0), Err: err}
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, fs.ErrPermission) {
		e.Kind = ErrUnsupported
		e.Remedy = "the system refuses netlink, most likely by RestrictAddressFamilies= of a unit (AF_NETLINK) or a seccomp profile: " +
			"permit it, or use NVMe/TCP"
	}
	return e
}
