package rc

import (
	"context"
	"fmt"
	"io"
	"net"
)

// Meet connects both sides by TCP. A server waits for one client, and says on out where.
func (s *Sides) Meet(ctx context.Context, out io.Writer) (net.Conn, error) {
	if s.Server.IsValid() {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", s.Addr().String())
		return closedBy(ctx, conn), err
	}
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", s.Addr().String())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Fprintf(out, "waiting at %s\n", s.Addr())
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
