package socket

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/nvme-anywhere/nvmeof/internal/listen"
)

// System is the kernel's TCP.
var System Network = system{}

type system struct{}

func (system) Listen(addr netip.AddrPort) (Listener, error) {
	l, err := listen.TCP(hostPort(addr))
	if err != nil {
		return nil, err
	}
	return listener{l}, nil
}

// hostPort returns an address as package net writes it, where an empty host means every address.
func hostPort(addr netip.AddrPort) string {
	if !addr.Addr().IsValid() {
		return net.JoinHostPort("", strconv.Itoa(int(addr.Port())))
	}
	return addr.String()
}

func (system) Dial(ctx context.Context, local netip.Addr, remote netip.AddrPort) (Conn, error) {
	var d net.Dialer
	if local.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: local.AsSlice(), Zone: local.Zone()}
	}
	c, err := d.DialContext(ctx, "tcp", remote.String())
	if err != nil {
		return nil, err
	}
	return of(c.(*net.TCPConn))
}

type listener struct{ *net.TCPListener }

func (l listener) Addr() netip.AddrPort { return addrPort(l.TCPListener.Addr()) }

func (l listener) Accept() (Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return of(c)
}

// of returns the Conn of c, which it closes if it fails.
func of(c *net.TCPConn) (Conn, error) {
	t, err := Of(c)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return t, nil
}
