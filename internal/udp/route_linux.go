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
