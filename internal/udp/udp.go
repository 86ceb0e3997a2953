package udp

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// Limits of one Train.
const (
	MaxTrainBytes    = 65000 // UDP payload of one train, safely below 65,507
	MaxTrainSegments = 64    // UDP_MAX_SEGMENTS of older kernels; newer ones take 128
	MaxTrainParts    = 1024  // UIO_MAXIOV: gathered pieces of one message
)

// RecvBatch is the most entries that one Recv fills; a longer rx gains nothing. Small datagrams that arrive one by one
// cost a tenth less with 16 than with 1, and 64 gain nothing more; for coalesced ones it makes no difference. The
// buffers behind it are 64 KiB each.
const RecvBatch = 16

// Train is a run of datagrams for one destination that are sent as one: all are SegmentSize bytes long, except that the
// last may be shorter. Append builds one.
type Train struct {
	Dst          netip.AddrPort
	Parts        [][]byte // the bytes of all datagrams in order, split anywhere
	Bytes        int      // sum of the lengths of Parts
	SegmentSize  int
	TrafficClass uint8 // DSCP and ECN: IPv4 TOS, IPv6 traffic class
}

// Received is what the kernel received as one: a datagram, or several of one flow, coalesced. All are SegmentSize bytes
// long, except that the last may be shorter.
type Received struct {
	Buf          []byte // owned by the Conn until the next Recv
	SegmentSize  int
	Src          netip.AddrPort
	Dst          netip.Addr // the local address it was sent to
	TrafficClass uint8
	// Index is the position of the first datagram among those that arrived in one piece: 0 unless a Conn has split
	// them.
	Index int
}

// Conn is a socket bound to one local address.
type Conn interface {
	LocalAddr() netip.AddrPort
	// MTU returns the largest IP packet, in bytes, that the interface of the local address carries.
	MTU() int
	// RecvBuffer returns about how many unread bytes of large datagrams the kernel will hold; small datagrams cost the
	// kernel several times their size.
	RecvBuffer() int
	// Segmentation reports whether a Train may hold more than one datagram. It may change from true to false once,
	// after Send has returned ErrSegmentation.
	Segmentation() bool
	// Segments is Segmentation for trains to dst: it is also false for a while after the route there has refused one.
	Segments(dst netip.AddrPort) bool

	// Recv waits for datagrams and fills rx; it returns how many entries are filled, at least one. Only one goroutine
	// may call it at a time. It returns ErrClosed after Close.
	Recv(rx []Received) (int, error)
	// TryRecv is like Recv but returns 0 instead of waiting.
	TryRecv(rx []Received) (int, error)
	// Send hands trains to the kernel in order and returns how many were taken. Several goroutines may call it. A
	// datagram that the kernel drops is not an error: it counts as taken, and is counted in Counters. The errors are
	// ErrClosed, ErrSegmentation (see the package documentation), ErrTrain, and EFAULT if memory of a train can't be
	// read; the index returned is that of the train concerned.
	Send(trains []Train) (int, error)
	Close() error
}

// Sharing is a Conn that may share memory with the programs at some destinations. Send uses that memory, too; but with
// Begin and End a caller can write a train directly to it, without Parts. Only one goroutine at a time may call Begin
// and End.
type Sharing interface {
	Conn
	// Shares reports whether memory is shared with dst now.
	Shares(dst netip.AddrPort) bool
	// Begin returns t.Bytes bytes of memory for t, to be read by another processor, and must be followed by End. If
	// there is no room, or memory is no longer shared, it returns nil: then the train is lost, and counts as dropped.
	Begin(t *Train) []byte
	// End sends t, which was written to the memory that Begin returned, or nothing if whole is false.
	End(t *Train, whole bool)
}

// Attended is a Conn whose Recv returns early when the caller has other tasks to do.
type Attended interface {
	Conn
	// Attend says, before the first Recv, that a stands for the caller of Recv, and puts a on duty. From then on, while
	// tasks are offered, Recv returns what has arrived, or 0, instead of polling or waiting for datagrams; and a is off
	// duty while Recv sleeps.
	Attend(a *duty.Attendant)
}
