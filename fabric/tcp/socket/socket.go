// Package socket is what package tcp needs of TCP: connections whose calls never wait, and waiting apart from them.
// System is the kernel's TCP. Another Network may take its place, such as a TCP in user space; the tests' simulated one
// is internal/simnet.
package socket

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Network makes connections.
type Network interface {
	// Listen listens on addr: a zero Addr is every address, an unspecified one every address of its family, and port 0
	// a free port.
	Listen(addr netip.AddrPort) (Listener, error)
	// Dial connects to remote, from local if that is valid, until ctx ends.
	Dial(ctx context.Context, local netip.Addr, remote netip.AddrPort) (Conn, error)
}

// Listener accepts connections.
type Listener interface {
	// Accept waits for a connection. After Close the error is net.ErrClosed.
	Accept() (Conn, error)
	Addr() netip.AddrPort
	Close() error
}

// Conn is one end of a connection. At a time one goroutine may receive, and another one send. Recv, Send and Ended never
// wait, and must not be called after Close or Abort.
type Conn interface {
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort

	// WhenReadable calls f, and again after each event that Recv may tell of, until f returns true. It may forget events
	// from before the first call. The error is os.ErrDeadlineExceeded once the read deadline has passed, and
	// net.ErrClosed after Close.
	WhenReadable(f func() bool) error
	// WhenWritable does the same for Send and the write deadline.
	WhenWritable(f func() bool) error

	// Recv receives into parts. n is 0 at the end of the stream, and errno is EAGAIN if nothing has arrived. left is 0 if
	// neither bytes nor the end of the stream are left (a reset may be), and below 0 if that isn't known. onDemand says
	// that pages of parts may be missing, so that the call may wait for a disk.
	Recv(parts []unix.Iovec, onDemand bool) (n, left int, errno unix.Errno)
	// Send sends what there is room for of parts. If there is none errno is EAGAIN. more says that another call follows,
	// so that a short segment may wait for it.
	Send(parts []unix.Iovec, more, onDemand bool) (n int, errno unix.Errno)

	// Ended reports whether either end has closed or reset the connection, or it is lost, even if data that the peer
	// sent before is still unread.
	Ended() bool

	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	// CloseRead makes Recv return what has arrived, and then the end of the stream. It is an event for WhenReadable.
	CloseRead() error
	// CloseWrite sends the end of the stream behind what was sent.
	CloseWrite() error
	// Close closes the connection. What was sent still goes out, unless something received is unread: then the
	// connection is reset.
	Close() error
	// Abort closes the connection by a reset. Nothing is sent any more of what was.
	Abort() error
}
