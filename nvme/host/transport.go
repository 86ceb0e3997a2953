package host

import (
	"context"
	"math/bits"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Transport makes queue connections; the bindings in fabric/ fulfil it.
type Transport interface {
	Type() nvme.TransportType
	// Dial makes the connection of one queue pair, ready for its Connect command.
	Dial(ctx context.Context, a QueueAttr) (TransportQueue, error)
	// Alloc gives n bytes of memory that the transport moves without registering or copying it anew; n has to be
	// positive. It is aligned to 4096 bytes; less than 4096 to its length rounded up to a power of two, of 512 at least.
	// Other memory works too, at a cost per request. It may be called by any goroutine, as Free.
	Alloc(n int) ([]byte, error)
	// Free takes back memory of Alloc.
	Free(b []byte)
}

// QueueAttr says what queue is wanted.
type QueueAttr struct {
	Remote netip.AddrPort
	Local  netip.Addr // the source address; zero to let the transport choose
	QID    uint16
	CNTLID uint16 // of the controller, for I/O queues
	Size   int    // entries, 2 to 65536
	// InCapsule is the data that a command capsule may carry, in bytes: from IOCCSZ for I/O
	// queues; 0 on the admin queue, where each transport has its own rule.
	InCapsule int

	Sink Sink
}

// SlotOf is the slot of a command identifier: its low bits, as many as Size needs.
func (a QueueAttr) SlotOf(cid uint16) int {
	return int(cid) & (1<<bits.Len(uint(a.Size-1)) - 1)
}

// Sink is where a transport queue delivers; the host core fulfils it. A transport calls it
// from its own context, never concurrently for one queue.
type Sink interface {
	// Completed: a response arrived and, where the command has data, the data is in place and
	// the transport no longer uses the request's memory. cqe is valid during the call.
	// It returns false for a command identifier that isn't outstanding: a fatal error.
	Completed(cqe *nvme.Completion) bool
	// Closed: the connection is gone (err says why; nil after Close), and the memory of all
	// requests is the owner's again. It is the last call.
	Closed(err error)
}

// TransportQueue is the transport's half of one queue pair.
type TransportQueue interface {
	// Submit sends the commands of rs, in order. The transport sets the SGL of each, from
	// its Data and direction. CIDs are set, unique among those outstanding, and their low
	// bits (Slot) index a table of QueueAttr.Size entries. It doesn't block or fail: a dead
	// connection is told by Sink.Closed.
	Submit(rs []*Request)
	// Limits of this queue after negotiation.
	Size() int
	// RTT is the transport's smoothed round-trip estimate in nanoseconds, 0 where it has none.
	RTT() int64
	Local() netip.AddrPort
	// Close ends the connection orderly and waits until Sink.Closed has returned.
	Close() error
}
