package simnet

import (
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
)

// tcpConn is one end of a connection. It implements socket.Conn as Linux's TCP behaves. All of it is under TCP.mu,
// except the gates.
type tcpConn struct {
	tcp *TCP
	at  ends

	state    tcpState
	settled  chan struct{} // closed when Dial has succeeded or failed
	listener *tcpListener  // of a connection that isn't established
	err      unix.Errno    // the next call returns it
	closed   bool          // Close or Abort was called: nobody uses the connection any more
	ended    bool          // the peer has sent the end of the stream, and all before it
	readShut bool          // CloseRead or Close was called
	buffer   int           // bytes of each direction that the connection keeps
	in       []byte        // received
	full     bool          // Send had no room

	outgoing
	incoming

	readable, writable gate
}

var _ socket.Conn = (*tcpConn)(nil)

// buffers are the sizes of connections' buffers.
var buffers = []int{4 << 10, 32 << 10, 256 << 10}

func (t *TCP) newConn(at ends, s tcpState) *tcpConn {
	t.made++
	c := &tcpConn{
		tcp: t, at: at, state: s, settled: make(chan struct{}), buffer: buffers[t.rng.IntN(len(buffers))],
		readable: newGate(), writable: newGate(),
	}
	c.first = t.made << 40
	c.next = c.first
	c.timer = time.AfterFunc(time.Hour, c.expire)
	c.timer.Stop()
	t.conns[at] = c
	return c
}

// LocalAddr implements socket.Conn.
func (c *tcpConn) LocalAddr() netip.AddrPort { return c.at.local }

// RemoteAddr implements socket.Conn.
func (c *tcpConn) RemoteAddr() netip.AddrPort { return c.at.remote }

// WhenReadable implements socket.Conn.
func (c *tcpConn) WhenReadable(f func() bool) error { return c.readable.when(f) }

// WhenWritable implements socket.Conn.
func (c *tcpConn) WhenWritable(f func() bool) error { return c.writable.when(f) }

// SetReadDeadline implements socket.Conn.
func (c *tcpConn) SetReadDeadline(t time.Time) error { return c.readable.setDeadline(t) }

// SetWriteDeadline implements socket.Conn.
func (c *tcpConn) SetWriteDeadline(t time.Time) error { return c.writable.setDeadline(t) }

// Recv implements socket.Conn.
func (c *tcpConn) Recv(parts []unix.Iovec, _ bool) (n, left int, errno unix.Errno) {
	c.tcp.mu.Lock()
	defer c.tcp.mu.Unlock()
	c.mustBeOpen()
	if len(c.in) == 0 {
		return 0, 0, c.nothing()
	}
	for i := range parts {
		n += copy(bytesOf(&parts[i]), c.in[n:])
	}
	c.in = c.in[n:]
	c.tellOfRoom()
	left = len(c.in)
	if c.ended {
		left++
	}
	return n, left, 0
}

// nothing returns what Recv returns if nothing is left to be read.
func (c *tcpConn) nothing() unix.Errno {
	switch {
	case c.ended:
		return 0
	case c.err != 0:
		return c.takeError()
	case c.readShut || c.state == gone:
		return 0
	}
	return unix.EAGAIN
}

func (c *tcpConn) takeError() unix.Errno {
	err := c.err
	c.err = 0
	return err
}

// Send implements socket.Conn.
func (c *tcpConn) Send(parts []unix.Iovec, _, _ bool) (n int, errno unix.Errno) {
	c.tcp.mu.Lock()
	defer c.tcp.mu.Unlock()
	c.mustBeOpen()
	switch {
	case c.err != 0:
		return 0, c.takeError()
	case c.state == gone || c.finished:
		return 0, unix.EPIPE
	case len(c.out) >= c.buffer:
		c.full = true
		return 0, unix.EAGAIN
	}
	for i := range parts {
		b := bytesOf(&parts[i])
		b = b[:min(len(b), c.buffer-len(c.out))]
		c.out = append(c.out, b...)
		n += len(b)
	}
	c.push()
	return n, 0
}

// mustBeOpen panics if the descriptor might by now be another connection's.
func (c *tcpConn) mustBeOpen() {
	if c.closed {
		panic("simnet: Recv or Send after Close")
	}
}

func bytesOf(v *unix.Iovec) []byte { return unsafe.Slice(v.Base, int(v.Len)) }

// Ended implements socket.Conn.
func (c *tcpConn) Ended() bool {
	c.tcp.mu.Lock()
	defer c.tcp.mu.Unlock()
	return c.state == gone || c.ended || c.finished
}

// CloseRead implements socket.Conn.
func (c *tcpConn) CloseRead() error { return c.shutdown(&c.readShut) }

// CloseWrite implements socket.Conn.
func (c *tcpConn) CloseWrite() error { return c.shutdown(&c.finished) }

// shutdown sets readShut or finished.
func (c *tcpConn) shutdown(direction *bool) error {
	c.tcp.mu.Lock()
	defer c.tcp.mu.Unlock()
	if c.state == gone || c.ended && c.sentAll() {
		return opError("close", c.at.remote, os.NewSyscallError("shutdown", unix.ENOTCONN))
	}
	*direction = true
	c.push()
	c.readable.signal()
	c.writable.signal()
	return nil
}

// Close implements socket.Conn.
func (c *tcpConn) Close() error {
	return c.close(func() {
		if len(c.in) > 0 {
			c.reset()
			return
		}
		c.finished, c.readShut = true, true
		c.push()
		c.lingerIfOver()
	})
}

// Abort implements socket.Conn.
func (c *tcpConn) Abort() error { return c.close(c.reset) }

func (c *tcpConn) close(how func()) error {
	c.tcp.mu.Lock()
	defer c.tcp.mu.Unlock()
	if c.closed {
		return opError("close", c.at.remote, net.ErrClosed)
	}
	c.closed = true
	if c.state != gone {
		how()
	}
	c.readable.close()
	c.writable.close()
	return nil
}
