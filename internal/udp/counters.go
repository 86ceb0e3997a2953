package udp

import (
	"sync/atomic"
	"syscall"
)

// Counters are what a Conn has done since Listen. They only grow, except LastSendErrno.
type Counters struct {
	RxDatagrams   atomic.Uint64 // after splitting what was coalesced
	RxBytes       atomic.Uint64 // UDP payload
	RxShared      atomic.Uint64 // bytes of those that came through shared memory
	RxSyscalls    atomic.Uint64 // receive calls that brought something
	RxEmpty       atomic.Uint64 // calls that found nothing, of those that didn't wait
	RxCoalesced   atomic.Uint64 // receives that held more than one datagram
	RxTruncated   atomic.Uint64 // receives cut short, and so discarded
	RxKernelDrops atomic.Uint64 // datagrams lost to a full receive buffer (SO_RXQ_OVFL)

	_ [64]byte // receiving and sending happen on different processors

	TxDatagrams  atomic.Uint64
	TxBytes      atomic.Uint64
	TxShared     atomic.Uint64 // bytes of those that went through shared memory
	TxSyscalls   atomic.Uint64
	TxTrains     atomic.Uint64 // messages of more than one datagram
	TxWaits      atomic.Uint64 // times the socket was full and Send waited for room
	TxDrops      atomic.Uint64 // datagrams the kernel refused, or shared memory had no room for
	txLastErrno  atomic.Uint32
	txSegRefused atomic.Uint32
}

// LastSendErrno is why the last datagram counted in TxDrops was refused, 0 where none was.
func (c *Counters) LastSendErrno() syscall.Errno { return syscall.Errno(c.txLastErrno.Load()) }

// SegmentationRefused is the kernel's reason for refusing UDP_SEGMENT, 0 where it didn't.
func (c *Counters) SegmentationRefused() syscall.Errno {
	return syscall.Errno(c.txSegRefused.Load())
}

// Counted is a Conn that keeps Counters, as those of Listen do.
type Counted interface {
	Counters() *Counters
}
