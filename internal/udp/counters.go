package udp

import "sync/atomic"

// Counters are what a Conn has done since Listen. They only grow.
type Counters struct {
	RxDatagrams   atomic.Uint64 // after splitting what was coalesced
	RxBytes       atomic.Uint64 // UDP payload
	RxShared      atomic.Uint64 // bytes of those that came through shared memory
	RxSyscalls    atomic.Uint64 // receive calls that brought something
	RxEmpty       atomic.Uint64 // calls that found nothing, of those that didn't wait
	RxTruncated   atomic.Uint64 // receives cut short, and so discarded
	RxKernelDrops atomic.Uint64 // datagrams lost to a full receive buffer (SO_RXQ_OVFL)

	_ [64]byte // receiving and sending happen on different processors

	TxDatagrams atomic.Uint64
	TxBytes     atomic.Uint64
	TxShared    atomic.Uint64 // bytes of those that went through shared memory
	TxSyscalls  atomic.Uint64
	TxWaits     atomic.Uint64 // times the socket was full and Send waited for room
	TxDrops     atomic.Uint64 // datagrams the kernel refused, or shared memory had no room for
}

// Counted is a Conn that keeps Counters, as those of Listen do.
type Counted interface {
	Counters() *Counters
}
