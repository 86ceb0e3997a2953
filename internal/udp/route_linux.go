package udp

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// PathMTU is the largest IP packet that the path from an address of this host to another takes, as far as the kernel
// knows: by the interface as it is now, by routes, and by what routers have said (RFC 1191, RFC 8201).
func PathMTU(local netip.Addr, dst netip.AddrPort) (int, error) {
	scope, err := scopeOf(local.Zone())
	if err != nil {
		return 0, err
	}
	return routeMTU(local.Unmap(), scope, dst)
}

// routeMTU is the largest packet that the path from one of our addresses to dst takes, as far
// as the kernel knows. An error means that there is no such path.
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

// OnThisHost reports whether what is sent to an address is known to stay on this host (in this network namespace): the
// kernel carries it in memory. What comes from it may have been forged outside: Linux drops such a datagram of IPv4, and
// takes one of IPv6. Addresses on a link say nothing, since two links may have the same.
func OnThisHost(addr netip.Addr) bool {
	here, err := local(addr, 0)
	return here && err == nil && !addr.IsLinkLocalUnicast()
}

// isHere reports whether a neighbor's address may be one of this host still: nothing says that it isn't.
func isHere(addr netip.Addr, scope uint32) bool {
	here, err := local(addr, scope)
	return here || err != nil
}

// local asks, with few calls and little memory, whether an address is one of this host: to those the kernel sends from
// the same ones, unless its rules lead out to them. An error says that there is no socket to ask with.
func local(addr netip.Addr, scope uint32) (bool, error) {
	if addr.IsLoopback() { // 127.0.0.0/8 is sent to from 127.0.0.1
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
	const discard = 9 // which isn't sent to
	if unix.Connect(fd, sockaddr(netip.AddrPortFrom(addr, discard), scope)) != nil {
		return false, nil // there is no way to it
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
