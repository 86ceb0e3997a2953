package udp

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

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

// isHere reports whether an address is one of this host, as OnThisHost does, with few calls and little memory: to its
// own addresses the kernel sends from the same ones. Where no socket is to be had it is taken for one.
func isHere(addr netip.Addr, scope uint32) bool {
	if addr.IsLoopback() { // 127.0.0.0/8 is sent to from 127.0.0.1
		return true
	}
	addr, family := addr.Unmap(), unix.AF_INET6
	if addr.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	const discard = 9 // which isn't sent to
	if unix.Connect(fd, sockaddr(netip.AddrPortFrom(addr, discard), scope)) != nil {
		return false
	}
	from, err := unix.Getsockname(fd)
	switch from := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(from.Addr) == addr
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(from.Addr) == addr.WithZone("")
	}
	return err != nil
}
