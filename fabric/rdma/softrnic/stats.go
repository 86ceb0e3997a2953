package softrnic

import "github.com/nvme-anywhere/nvmeof/internal/udp"

// SocketStats holds the counters of an RNIC's UDP socket.
type SocketStats struct {
	RxDatagrams   uint64
	RxBytes       uint64 // UDP payload
	RxShared      uint64 // of RxBytes, those that came through memory shared with a program of this kind
	RxSyscalls    uint64 // receive calls that returned something
	RxEmpty       uint64 // non-blocking receive calls that found nothing
	RxKernelDrops uint64 // datagrams lost to a full receive buffer
	RxTruncated   uint64 // receives that were truncated, and so discarded
	TxDatagrams   uint64
	TxBytes       uint64
	TxShared      uint64 // of TxBytes, those that went through shared memory
	TxSyscalls    uint64
	TxWaits       uint64 // times that the socket was full and sending waited
	TxDrops       uint64 // datagrams that the system refused, or for which shared memory had no room
	TxRefusals    uint64 // times that the system, or a route, refused to cut what was sent at once into datagrams
}

// SocketStats reads the counters of the RNIC's UDP socket.
func (n *RNIC) SocketStats() SocketStats {
	c := n.socket.(udp.Counted).Counters()
	return SocketStats{
		RxDatagrams: c.RxDatagrams.Load(), RxBytes: c.RxBytes.Load(), RxSyscalls: c.RxSyscalls.Load(), RxEmpty: c.RxEmpty.Load(),
		RxShared: c.RxShared.Load(), RxKernelDrops: c.RxKernelDrops.Load(), RxTruncated: c.RxTruncated.Load(),
		TxDatagrams: c.TxDatagrams.Load(), TxBytes: c.TxBytes.Load(), TxSyscalls: c.TxSyscalls.Load(),
		TxShared: c.TxShared.Load(), TxWaits: c.TxWaits.Load(), TxDrops: c.TxDrops.Load(),
		TxRefusals: c.TxRefusals.Load(),
	}
}
