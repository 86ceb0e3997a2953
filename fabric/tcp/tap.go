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

// attachTap makes the Tap of connection c by newTap, if that isn't nil, and gives it to r and w.
func attachTap(newTap func(local, remote netip.AddrPort) Tap, c socket.Conn, r *reader, w *writer) {
	if newTap == nil {
		return
	}
	tap := newTap(c.LocalAddr(), c.RemoteAddr())
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
