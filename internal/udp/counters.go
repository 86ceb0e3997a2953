package udp

import "sync/atomic"

// Counters count what a Conn has done since Listen. They only grow.
type Counters struct {
	RxDatagrams   atomic.Uint64 // after splitting what was coalesced
	RxBytes       atomic.Uint64 // UDP payload
	RxShared      atomic.Uint64 // of RxBytes, those that came through shared memory
	RxSyscalls    atomic.Uint64 // receive calls that returned something
	RxEmpty       atomic.Uint64 // non-blocking receive calls that found nothing
	RxTruncated   atomic.Uint64 // receives that were truncated, and so discarded
	RxKernelDrops atomic.Uint64 // datagrams lost to a full receive buffer (SO_RXQ_OVFL)

	_ [64]byte // receiving and sending happen on different processors

	TxDatagrams atomic.Uint64
	TxBytes     atomic.Uint64
	TxShared    atomic.Uint64 // of TxBytes, those that went through shared memory
	TxSyscalls  atomic.Uint64
	TxWaits     atomic.Uint64 // times the socket was full and Send waited for room
	TxDrops     atomic.Uint64 // datagrams that the kernel refused, or for which shared memory had no room
	TxRefusals  atomic.Uint64 // trains that the kernel or a route refused to segment
}

// Counted is a Conn that keeps Counters, as those from Listen do.
type Counted interface {
	Counters() *Counters
}
