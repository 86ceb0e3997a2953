package metrics

import (
	"net"
	"sync"

	"github.com/nvme-anywhere/nvmeof/internal/crowd"
)

// maxConns bounds the connections of a server: each takes a descriptor, and hosts and volumes need some, too.
const maxConns = 64

// listener has at most maxConns connections at a time. When there are that many, the address that has most of them gets
// no more, and its oldest one gives way to that of an address that has fewer.
type listener struct {
	*net.TCPListener

	mu    sync.Mutex
	conns int
	crowd crowd.Crowd[*conn]
}

// conn is a connection of a listener.
type conn struct {
	*net.TCPConn
	listener *listener
	place    *crowd.Member[*conn] // nil once it has left
}

// Accept returns the next connection for which there is a place.
func (l *listener) Accept() (net.Conn, error) {
	for {
		tcp, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		c := &conn{TCPConn: tcp, listener: l}
		if l.enter(c) {
			return c, nil
		}
		_ = tcp.Close()
	}
}

// enter gives c a place, or returns false.
func (l *listener) enter(c *conn) bool {
	addr := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == maxConns {
		oldest := l.crowd.Yield(addr)
		if oldest == nil {
			return false
		}
		l.leave(oldest.Conn)
		_ = oldest.Conn.TCPConn.Close()
	}
	l.conns++
	c.place = l.crowd.Add(addr, c)
	return true
}

// leave takes back the place of c, if it still has it. It is called with mu held.
func (l *listener) leave(c *conn) {
	if c.place != nil {
		l.crowd.Remove(c.place)
		c.place = nil
		l.conns--
	}
}

// Close closes the connection, which leaves its place to another.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.leave(c)
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}
