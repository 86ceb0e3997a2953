package rc

import (
	"context"
	"net"
	"net/netip"
)

// Dial connects to the server's TCP port.
func Dial(ctx context.Context, server netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", server.String())
	return closedBy(ctx, conn), err
}

// Accept waits for one client at a TCP port; it calls listening as soon as the client can
// connect.
func Accept(ctx context.Context, at netip.AddrPort, listening func()) (net.Conn, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	listening()
	conn, err := l.Accept()
	return closedBy(ctx, conn), err
}

// closedBy closes the connection when ctx ends, which ends calls that wait for it.
func closedBy(ctx context.Context, conn net.Conn) net.Conn {
	if conn != nil {
		context.AfterFunc(ctx, func() { conn.Close() })
	}
	return conn
}
