package cm

import "net/netip"

// Datagrams carries management datagrams to and from queue pair 1, the general services interface. A software RNIC
// implements it in addition to verbs.Device: each MAD is the payload of one UD SEND_ONLY from QP 1 to QP 1 with Q_Key
// 0x80010000 and P_Key 0xffff. Delivery is best effort.
type Datagrams interface {
	// SendMAD sends the 256 bytes of mad (mad.Size) to dst. It copies mad before it returns, does not wait for the
	// network, and may be called from any goroutine, and inside the handler. An error says that dst can't be reached or
	// that the device is closed, except for verbs.ErrNoMemory: a full queue counts as loss, which the timers of this
	// package recover.
	SendMAD(dst netip.Addr, mad []byte) error

	// HandleMADs makes handler the receiver of arriving MADs; nil removes it, after which no call begins. The handler
	// is called in the device's own context, one MAD at a time, with no lock of the device held; it must not block. src
	// is the sender's IP address, unmapped; mad has 256 bytes and is valid during the call.
	HandleMADs(handler func(src netip.Addr, mad []byte))
}
