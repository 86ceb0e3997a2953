package tcp

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
)

// Tap sees the bytes that cross the socket of one connection, such as for a packet capture. Its methods
// must not block, and must not keep the slices.
type Tap interface {
	// Sent is called with bytes before they are written to the socket, once for each, in order.
	Sent(parts [][]byte)
	// Received is called when the first n bytes of parts have arrived. It is called from a
	// different goroutine than Sent.
	Received(parts [][]byte, n int)
	// Close is the last call.
	Close()
}

// tapFunc makes the Tap of a connection, or nil for none.
type tapFunc func(local, remote netip.AddrPort) Tap

// attach makes the Tap of connection c, if it is to have one, and gives it to r and w.
func (f tapFunc) attach(c socket.Conn, r *reader, w *writer) {
	if f == nil {
		return
	}
	tap := f(c.LocalAddr(), c.RemoteAddr())
	r.tap, w.tap = tap, tap
}

// pieces returns the memory that iov describes as slices, and reuses scratch for the result.
func pieces(scratch [][]byte, iov []unix.Iovec) [][]byte {
	scratch = scratch[:0]
	for i := range iov {
		scratch = append(scratch, unsafe.Slice(iov[i].Base, int(iov[i].Len)))
	}
	return scratch
}
