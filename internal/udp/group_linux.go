package udp

import (
	"errors"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// ListenGroup opens n sockets on addr that share its port. The kernel gives each datagram, or train that it has not cut
// into datagrams, to the socket whose index the program steer returns. The program sees the UDP payload of the first
// datagram, and a load from beyond the end of it makes it return 0. A group can't share memory with neighbors. Nobody
// else must have the port; otherwise the errors are those of Listen.
func ListenGroup(addr netip.AddrPort, cfg Config, n int, steer []bpf.RawInstruction) ([]Conn, error) {
	if cfg.ShareMemory {
		return nil, &OpError{Op: "listen", Addr: addr, Kind: ErrUnsupported, Remedy: "use one socket at an address to share memory with neighbors"}
	}
	// Alone first: a shared socket would join those of another program of this user.
	first, err := newConn(addr, cfg, false)
	if err != nil {
		return nil, err
	}
	group := []Conn{first}
	if err := share(first.fd); err != nil {
		return nil, errors.Join(listenError(first.local, err), closeAll(group))
	}
	for len(group) < n {
		c, err := newConn(first.local, cfg, true)
		if err != nil {
			return nil, errors.Join(err, closeAll(group))
		}
		group = append(group, c)
	}
	if err := first.steer(steer); err != nil {
		return nil, errors.Join(err, closeAll(group))
	}
	return group, nil
}

// share lets further sockets of this user that are shared, too, have the port of a socket.
func share(fd int) error {
	return os.NewSyscallError("setsockopt SO_REUSEPORT", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

// steer makes the kernel choose among the sockets that share c's port by a program.
func (c *conn) steer(program []bpf.RawInstruction) error {
	filter := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	if err := unix.SetsockoptSockFprog(c.fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &fprog); err != nil {
		return &OpError{Op: "choose among sockets of", Addr: c.local, Kind: ErrUnsupported, Err: err,
			Remedy: "SO_ATTACH_REUSEPORT_CBPF needs Linux 4.5: use one socket at an address"}
	}
	return nil
}

func closeAll(conns []Conn) error {
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
