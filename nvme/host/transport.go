package host

import (
	"context"
	"math/bits"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Transport makes the connections of queues; the bindings in fabric/ implement it.
type Transport interface {
	Type() nvme.TransportType
	// Dial makes the connection of one queue pair, ready for its Connect command.
	Dial(ctx context.Context, a QueueAttr) (TransportQueue, error)
	// Alloc returns n bytes of memory that the transport transfers without registering or copying it each time. Its
	// content is undefined. It is aligned to 4096 bytes or, if shorter, to its length rounded up to a power of two, at
	// least 512. Other memory works too, at a cost per request. The error is ErrRange if n isn't positive, and
	// ErrNoMemory if there is no more. Alloc and Free may be called by any goroutine.
	Alloc(n int) ([]byte, error)
	// Free releases memory from Alloc of this transport. b begins where that memory does, and may be shorter.
	Free(b []byte)
}

// QueueAttr describes the queue that is wanted.
type QueueAttr struct {
	Remote netip.AddrPort
	Local  netip.Addr // the source address; zero lets the transport choose
	QID    uint16
	CNTLID uint16 // of the controller, for I/O queues
	Size   int    // entries, 2 to 65536
	// InCapsule is how many bytes of data a command capsule may carry: derived from IOCCSZ for I/O queues; 0 on the
	// admin queue, where each transport has its own rule.
	InCapsule int

	Sink Sink
}

// SlotOf returns the slot of a command identifier: its low bits, as many as Size needs.
func (a QueueAttr) SlotOf(cid uint16) int {
	return int(cid) & (1<<bits.Len(uint(a.Size-1)) - 1)
}

// Sink is where a transport queue delivers; the host core implements it. A transport calls it from its own context,
// never concurrently for one queue.
type Sink interface {
	// Completed: a response arrived and, if the command has data, the data is in place and the transport no longer
	// uses the request's memory. cqe is valid during the call. It returns false for a command identifier that isn't
	// outstanding, which is a fatal error.
	Completed(cqe *nvme.Completion) bool
	// Closed: the connection is gone (err says why; nil after Close), and the memory of all requests belongs to
	// their owners again. It is the last call.
	Closed(err error)
}

// TransportQueue is the transport's half of one queue pair.
type TransportQueue interface {
	// Submit sends the commands of rs, in order. The transport sets the SGL of each, from its Data and direction.
	// CIDs are set and unique among the outstanding commands, and their low bits (Slot) index a table of
	// QueueAttr.Size entries. Submit neither blocks nor fails: the loss of the connection is reported by
	// Sink.Closed.
	Submit(rs []*Request)
	// Size is the number of entries of this queue after negotiation.
	Size() int
	Local() netip.AddrPort
	// Close ends the connection in an orderly way and waits until Sink.Closed has returned.
	Close() error
}
