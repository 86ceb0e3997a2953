package tcp

import (
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Tap sees what crosses the socket of one connection; a packet capture is one. Its methods
// must not block and not keep the slices.
type Tap interface {
	// Sent is told of bytes before the socket is, once of each, in order.
	Sent(parts [][]byte)
	// Received is told that the first n bytes of parts arrived. It is called from another
	// goroutine than Sent.
	Received(parts [][]byte, n int)
	// Close is called last.
	Close()
}

// tapFunc makes the Tap of a connection, or nil for none.
type tapFunc func(local, remote netip.AddrPort) Tap

// attach has the connection's Tap, if there is to be one, see what r and w do.
func (f tapFunc) attach(c *net.TCPConn, r *reader, w *writer) {
	if f == nil {
		return
	}
	tap := f(addrPort(c.LocalAddr()), addrPort(c.RemoteAddr()))
	r.tap, w.tap = tap, tap
}

// pieces describes what iov describes as slices, in memory that is used again.
func pieces(scratch [][]byte, iov []unix.Iovec) [][]byte {
	scratch = scratch[:0]
	for i := range iov {
		scratch = append(scratch, unsafe.Slice(iov[i].Base, int(iov[i].Len)))
	}
	return scratch
}
