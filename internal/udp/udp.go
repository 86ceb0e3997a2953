package udp

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// Limits of one Train.
const (
	MaxTrainBytes    = 65000 // UDP payload of one train, safely below 65,507
	MaxTrainSegments = 64    // UDP_MAX_SEGMENTS of older kernels; newer take 128
	MaxTrainParts    = 1024  // UIO_MAXIOV: gathered pieces of one message
)

// RecvBatch is the most entries that one Recv fills; a longer rx gains nothing. Small
// datagrams that come one by one cost a tenth less with 16 than with 1, and 64 gain nothing
// more; coalesced ones don't care. The buffers behind it are 64 KiB each.
const RecvBatch = 16

// Train is a run of datagrams for one destination that leaves in one piece: all are
// SegmentSize bytes long, the last may be shorter. Append builds one.
type Train struct {
	Dst          netip.AddrPort
	Parts        [][]byte // the bytes of all datagrams in order, cut wherever the caller likes
	Bytes        int      // sum of the lengths of Parts
	SegmentSize  int
	TrafficClass uint8 // DSCP and ECN: IPv4 TOS, IPv6 traffic class
}

// Received is one receive of the kernel: one datagram or several of one flow, coalesced. All
// are SegmentSize bytes long, the last may be shorter.
type Received struct {
	Buf          []byte // owned by the Conn until the next Recv
	SegmentSize  int
	Src          netip.AddrPort
	Dst          netip.Addr // the local address it was sent to
	TrafficClass uint8
	// Index is the place that the first datagram had among those that arrived in one piece: 0
	// unless a Conn has split them.
	Index int
}

// Conn is a socket bound to one local address.
type Conn interface {
	LocalAddr() netip.AddrPort
	// MTU is the largest IP packet that the interface of the local address carries, in bytes.
	MTU() int
	// RecvBuffer is about what the kernel will hold for us unread, in bytes of large
	// datagrams; small ones cost the kernel several times their size.
	RecvBuffer() int
	// Segmentation says whether a Train may hold more than one datagram. It may turn from
	// true to false once, when Send has returned ErrSegmentation.
	Segmentation() bool

	// Recv waits for datagrams and fills rx; it returns how many entries are filled, at least
	// one. One goroutine calls it at a time. It returns ErrClosed after Close.
	Recv(rx []Received) (int, error)
	// TryRecv is Recv that returns 0 instead of waiting.
	TryRecv(rx []Received) (int, error)
	// Send hands trains to the kernel in order and returns how many were taken. Several
	// goroutines may call it. A datagram that the kernel drops is not an error: it counts as
	// taken, and in Counters. The errors are ErrClosed, ErrSegmentation (see the package
	// documentation) and ErrTrain; the train at the index returned is the one concerned.
	Send(trains []Train) (int, error)
	Close() error
}

// Sharing is a Conn that may share memory with the programs of some destinations. What Send sends there goes through it,
// too; but with Begin and End who makes a train can write it where it is to be, and needs no Parts. One goroutine at a
// time calls Begin and End.
type Sharing interface {
	Conn
	// Shares says whether memory is shared with dst now.
	Shares(dst netip.AddrPort) bool
	// Begin returns memory for t, t.Bytes long, which another processor will read; or nil where there is no room, or
	// nothing is shared any more: the train is lost then, and counts as dropped. Otherwise End follows.
	Begin(t *Train) []byte
	// End sends t, which was written to what Begin gave; where that isn't whole, nothing.
	End(t *Train, whole bool)
}

// Attended is a Conn whose Recv leaves its caller time for what others offer.
type Attended interface {
	Conn
	// Attend says, before the first Recv, that the caller of Recv is a, and puts it on duty. From then on Recv
	// returns what is there, or 0, where tasks are offered, instead of looking or waiting for datagrams, and a is
	// off duty while it sleeps there.
	Attend(a *duty.Attendant)
}
