package udp

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// open makes the socket, sets it up and binds it.
func (c *conn) open(addr netip.AddrPort, shared bool) error {
	family := unix.AF_INET6
	if addr.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	c.fd = fd
	if err := tryCalls(fd); err != nil {
		return &OpError{Op: "listen", Addr: addr, Kind: ErrUnsupported, Err: err,
			Remedy: "the system refuses this call, most likely by a seccomp profile: permit it, or use NVMe/TCP"}
	}
	if err := c.setOptions(family == unix.AF_INET); err != nil {
		return err
	}
	if shared {
		if err := share(fd); err != nil {
			return err
		}
	}
	err = unix.Bind(fd, sockaddr(addr, c.scope))
	if errors.Is(err, unix.EADDRNOTAVAIL) && isTentative(addr.Addr()) { // it is about to be usable
		if err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1); err == nil {
			err = unix.Bind(fd, sockaddr(addr, c.scope))
		}
	}
	if err != nil {
		return os.NewSyscallError("bind", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	c.local = netip.AddrPortFrom(addr.Addr(), portOf(sa))
	c.mtu, err = interfaceMTU(addr.Addr())
	return err
}

// isTentative reports whether an interface has an address that the system hasn't found to be unique yet (RFC 4862), nor
// to be another host's.
func isTentative(addr netip.Addr) bool {
	table, _ := os.ReadFile("/proc/thread-self/net/if_inet6") // address, index, prefix length, scope, flags, name
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > 4 && f[0] == hex.EncodeToString(addr.AsSlice()) {
			flags, err := strconv.ParseUint(f[4], 16, 32)
			return err == nil && flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == unix.IFA_F_TENTATIVE
		}
	}
	return false
}

// tryCalls calls what sends and receives, for no messages: later a refusal couldn't be told from a lost packet. Linux
// doesn't look at where none are, but QEMU's user mode refuses a null pointer.
func tryCalls(fd int) error {
	var none mmsghdr
	_, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&none)), 0, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("recvmmsg", errno)
	}
	_, _, errno = unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&none)), 0, 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("sendmmsg", errno)
	}
	return nil
}

type option struct {
	name       string // for the error; with the version of Linux that it needs, if Go does with less
	level, opt int
	value      int
}

func (c *conn) setOptions(v4 bool) error {
	// Packets never fragment, and are as long as the interface allows, whatever ICMP says of the path: anybody can forge
	// that for UDP, and no packet of a connection, whose length is fixed, would leave any more.
	opts := []option{
		{"IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE},
		{"IP_RECVTOS", unix.IPPROTO_IP, unix.IP_RECVTOS, 1},
		{"IP_TOS", unix.IPPROTO_IP, unix.IP_TOS, int(c.cfg.TrafficClass)},
	}
	if !v4 {
		opts = []option{
			{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
			{"IPV6_MTU_DISCOVER", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE},
			{"IPV6_DONTFRAG", unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1},
			{"IPV6_RECVTCLASS", unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1},
			{"IPV6_TCLASS", unix.IPPROTO_IPV6, unix.IPV6_TCLASS, int(c.cfg.TrafficClass)},
			// rdma_rxe and many network cards send RoCEv2 without a UDP checksum.
			{"UDP_NO_CHECK6_RX (Linux 3.16)", unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1},
		}
	}
	if c.cfg.Priority != 0 { // after the traffic class, which sets it too
		opts = append(opts, option{"SO_PRIORITY", unix.SOL_SOCKET, unix.SO_PRIORITY, c.cfg.Priority})
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(c.fd, o.level, o.opt, o.value); err != nil {
			return fmt.Errorf("set %s: %w", o.name, err)
		}
	}
	c.rcvbuf = setBuffer(c.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, cmp.Or(c.cfg.RecvBuffer, DefaultBuffer))
	setBuffer(c.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, DefaultBuffer)
	// It only counts drops (QEMU's user mode lacks it), and nothing depends on that.
	_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	c.setOffloads()
	return nil
}

// setOffloads finds out whether the kernel segments (Linux 4.18) and coalesces (5.0) UDP. Older kernels do neither, and
// everything works, only slower.
func (c *conn) setOffloads() {
	if !c.cfg.DisableSegmentation {
		_, err := unix.GetsockoptInt(c.fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		c.segments.Store(err == nil)
	}
	if !c.cfg.DisableCoalescing {
		_ = unix.SetsockoptInt(c.fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	}
}

// setBuffer requests a socket buffer of n bytes, beyond the system's limit if permitted, and returns what was granted.
// The kernel accounts twice that to cover its own overhead.
func setBuffer(fd, force, plain, n int) int {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, n) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, n)
	}
	booked, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, plain)
	if err != nil {
		return 0
	}
	return booked / 2
}

// listenError wraps err with the kind of failure and what to do about it.
func listenError(addr netip.AddrPort, err error) error {
	var e *OpError
	if errors.As(err, &e) {
		return e
	}
	e = &OpError{Op: "listen", Addr: addr, Err: err}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		e.Kind, e.Remedy = ErrInUse, inUseRemedy(addr)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		e.Kind, e.Remedy = ErrNotLocal, NotLocalRemedy(addr.Addr())
	case errors.Is(err, unix.EAFNOSUPPORT):
		family := "IPv6"
		if addr.Addr().Is4() {
			family = "IPv4"
		}
		e.Kind, e.Remedy = ErrUnsupported, "this system has no "+family+", or forbids it (RestrictAddressFamilies= of a unit)"
	}
	return e
}

// shareError is listenError for shared memory. By then the port is ours, but any program can take the abstract socket's
// name.
func shareError(addr netip.AddrPort, err error) error {
	e := &OpError{Op: "share memory with neighbors of", Addr: addr, Err: err, Remedy: "go without shared memory"}
	if errors.Is(err, unix.EADDRINUSE) {
		e.Kind = ErrInUse
		e.Remedy = "another program has the Unix socket at which neighbors look for this one (`ss -xlp | grep nvmeof/rnic`): " +
			"stop it, choose another address, or go without shared memory"
	}
	return e
}

func sockaddr(ap netip.AddrPort, scope uint32) unix.Sockaddr {
	if ap.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16(), ZoneId: scope}
}

func portOf(sa unix.Sockaddr) uint16 {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return uint16(sa.Port)
	case *unix.SockaddrInet6:
		return uint16(sa.Port)
	}
	return 0
}

// scopeOf returns the index of the interface that an IPv6 zone names.
func scopeOf(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("zone %q: %w", zone, err)
	}
	return uint32(ifi.Index), nil
}

// mmsghdr is struct mmsghdr: one message of recvmmsg or sendmmsg.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32 // bytes received
}

// rawName has room for either address family; an IPv4 address occupies a prefix of it.
type rawName = unix.RawSockaddrInet6

const (
	sizeofName4 = unix.SizeofSockaddrInet4
	sizeofName6 = unix.SizeofSockaddrInet6
)

// netPort converts a port between network byte order in memory and a number.
func netPort(p uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&p))
	return uint16(b[0])<<8 | uint16(b[1])
}

// putName writes ap as a socket address and returns its size.
func putName(n *rawName, ap netip.AddrPort, scope uint32) uint32 {
	if a := ap.Addr(); a.Is4() || a.Is4In6() {
		n4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(n))
		n4.Family, n4.Port, n4.Addr = unix.AF_INET, netPort(ap.Port()), a.As4()
		return sizeofName4
	}
	*n = rawName{Family: unix.AF_INET6, Port: netPort(ap.Port()), Addr: ap.Addr().As16(), Scope_id: scope}
	return sizeofName6
}
