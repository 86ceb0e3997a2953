package udp

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// routeMTU is the largest packet that the path to dst takes, as far as the kernel knows.
func routeMTU(dst netip.AddrPort) (int, error) {
	family, level, opt := unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU
	if dst.Addr().Unmap().Is4() {
		family, level, opt = unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	scope, err := scopeOf(dst.Addr().Zone())
	if err != nil {
		return 0, err
	}
	peer := netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	if err := unix.Connect(fd, sockaddr(peer, scope)); err != nil {
		return 0, err
	}
	return unix.GetsockoptInt(fd, level, opt)
}
