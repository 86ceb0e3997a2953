package udp

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// PathMTU returns the largest IP packet that the path from an address of this host to another address takes, as far as
// the kernel knows: from the interface's current MTU, from routes, and from what routers have reported (RFC 1191, RFC
// 8201).
func PathMTU(local netip.Addr, dst netip.AddrPort) (int, error) {
	scope, err := scopeOf(local.Zone())
	if err != nil {
		return 0, err
	}
	return routeMTU(local.Unmap(), scope, dst)
}

// routeMTU returns the largest packet that the path from one of our addresses to dst takes, as far as the kernel knows.
// An error means that there is no such path.
func routeMTU(src netip.Addr, scope uint32, dst netip.AddrPort) (int, error) {
	family, level, opt := unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU
	if dst.Addr().Unmap().Is4() {
		family, level, opt = unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(src, 0), scope)); err != nil {
		return 0, err
	}
	peer := netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	if err := unix.Connect(fd, sockaddr(peer, scope)); err != nil {
		return 0, err
	}
	return unix.GetsockoptInt(fd, level, opt)
}

// OnThisHost reports whether packets to an address are known to stay on this host (in this network namespace), where
// the kernel carries them in memory. Packets from it may still have been forged outside: Linux drops such a datagram of
// IPv4, but accepts one of IPv6. Link-local addresses prove nothing, since two links may have the same one.
func OnThisHost(addr netip.Addr) bool {
	here, err := local(addr, 0)
	return here && err == nil && !addr.IsLinkLocalUnicast()
}

// isHere reports whether a neighbor's address may still be one of this host: it is true unless the kernel says
// otherwise.
func isHere(addr netip.Addr, scope uint32) bool {
	here, err := local(addr, scope)
	return here || err != nil
}

// local reports, with few calls and little memory, whether an address is one of this host: the kernel sends to its own
// addresses from the same address, unless routing rules lead them off the host. An error means that there was no socket
// to ask with.
func local(addr netip.Addr, scope uint32) (bool, error) {
	if addr.IsLoopback() { // the source address for 127.0.0.0/8 is 127.0.0.1
		return true, nil
	}
	addr, family := addr.Unmap(), unix.AF_INET6
	if addr.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	const discard = 9 // nothing is sent to it
	if unix.Connect(fd, sockaddr(netip.AddrPortFrom(addr, discard), scope)) != nil {
		return false, nil // there is no route to it
	}
	from, err := unix.Getsockname(fd)
	switch from := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(from.Addr) == addr, nil
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(from.Addr) == addr.WithZone(""), nil
	}
	return false, err
}
