package softrnic

import "github.com/nvme-anywhere/nvmeof/internal/udp"

// SocketStats are what an RNIC's UDP socket has counted.
type SocketStats struct {
	RxDatagrams   uint64
	RxBytes       uint64 // UDP payload
	RxShared      uint64 // bytes of those that came through memory shared with a program of this kind
	RxSyscalls    uint64 // calls that brought something
	RxEmpty       uint64 // calls that found nothing, of those that didn't wait
	RxKernelDrops uint64 // datagrams lost to a full receive buffer
	RxTruncated   uint64 // receives cut short, and so discarded
	TxDatagrams   uint64
	TxBytes       uint64
	TxShared      uint64 // bytes of those that went through shared memory
	TxSyscalls    uint64
	TxWaits       uint64 // times that the socket was full and sending waited
	TxDrops       uint64 // datagrams that the system refused, or shared memory had no room for
}

// SocketStats reads the counters of the RNIC's UDP socket; ok is false where it keeps none.
func (n *RNIC) SocketStats() (s SocketStats, ok bool) {
	counted, ok := n.socket.(udp.Counted)
	if !ok {
		return s, false
	}
	c := counted.Counters()
	return SocketStats{
		RxDatagrams: c.RxDatagrams.Load(), RxBytes: c.RxBytes.Load(), RxSyscalls: c.RxSyscalls.Load(), RxEmpty: c.RxEmpty.Load(),
		RxShared: c.RxShared.Load(), RxKernelDrops: c.RxKernelDrops.Load(), RxTruncated: c.RxTruncated.Load(),
		TxDatagrams: c.TxDatagrams.Load(), TxBytes: c.TxBytes.Load(), TxSyscalls: c.TxSyscalls.Load(),
		TxShared: c.TxShared.Load(), TxWaits: c.TxWaits.Load(), TxDrops: c.TxDrops.Load(),
	}, true
}
