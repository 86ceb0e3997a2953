// Package listen opens TCP sockets to listen on, and keeps servers of net/http listening.
package listen

import (
	"context"
	"net"
	"net/netip"
)

// TCP listens on addr ("host:port"). An IP address stands for its own family: 0.0.0.0 means every IPv4 address, and [::]
// every IPv6 address, whereas Go's "tcp" would listen on both families for either. Without a host it means all
// addresses of both.
//
// It is TCP alone. Go would take Multipath TCP too, by which a host could bring a connection along paths from addresses
// that nobody counts or allowed, and which ends connections by other errors and is slower.
func TCP(addr string) (*net.TCPListener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	l, err := c.Listen(context.Background(), network(addr), addr)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// network returns Go's network name for the address family of addr.
func network(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	switch a, err := netip.ParseAddr(host); {
	case err != nil:
		return "tcp"
	case a.Unmap().Is4():
		return "tcp4"
	}
	return "tcp6"
}
