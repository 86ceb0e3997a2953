package target

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Conn is the transport's half of one NVMe queue pair: the operations that the engine needs from it. The bindings in
// fabric/ implement it. Its methods may be called from any goroutine, and from inside Queue.Submit; they do not block.
type Conn interface {
	// Attr describes the connection; constant.
	Attr() ConnAttr

	// MapSGL checks SGL1 of r.Cmd by the rules of the transport and returns how many bytes it describes. A status other
	// than success is the response to the command. It sets r.InCapsule if the descriptor points into the capsule.
	MapSGL(r *Request) (length int, st nvme.Status)

	// Alloc sets r.Data to n bytes of transport memory, aligned to 4096; if n is less than 4096, to n rounded up to a
	// power of two that is at least 512. If no memory is free now it returns false, and calls r.Resume later; the
	// engine then calls Alloc again.
	Alloc(r *Request, n int) bool

	// Pull fills r.Data (from Alloc, or memory that a volume lends), all r.Len() bytes, with the host's data, and then
	// calls r.Pulled, perhaps before it returns. It is not called for data in the capsule. Nothing is written to r.Data
	// after r.Pulled.
	Pull(r *Request)

	// Respond sends r.Data if r.SendData is set, then r.CQE, and frees what Alloc gave. When nothing of r is needed any
	// more, the transport calls r.Sent, and then uses r for another command.
	Respond(r *Request)

	// Disconnect ends the connection, in the background, because of err. It is nil if the host has the response to its
	// Disconnect command, the last of the queue: then the connection is dead at once. Queue.Closed follows when the
	// transport has let go of every request. If the target closes at that moment, it is called before NewQueue has
	// returned the queue.
	//
	// However a connection ends, the transport calls Queue.Closing as soon as it knows: the engine then gives back,
	// through Respond, the requests that wait for something other than a volume (asynchronous event requests above
	// all). It gives back the others as their volumes answer. Respond on a dead connection sends nothing and calls
	// r.Sent.
	Disconnect(err error)
}

// Gatherer is a Conn that batches responses if it knows that more will come.
type Gatherer interface {
	Conn
	// BeginRow makes Respond only gather responses until EndRow sends them; both are called on the goroutine that calls
	// Respond. It returns false, and no EndRow follows, if another goroutine is gathering or sending already.
	BeginRow() bool
	EndRow()
}

// ConnAttr describes a connection to the engine.
type ConnAttr struct {
	Transport nvme.TransportType
	Local     netip.AddrPort
	Remote    netip.AddrPort

	SGLS        nvme.SGLS // of Identify Controller
	InCapsule   int       // bytes of data that an I/O command capsule may carry
	MaxTransfer int       // bytes that one command can move; a power of two times 4096
	QueueDepth  int       // commands that the transport can hold at once
	// From RDMA private data, checked against Connect: QID and CNTLID; -1 if the transport has no such thing.
	QID, CNTLID int
}

// Request is one command, from the capsule to the response. The transport makes as many as the queue is deep, each for
// this queue alone, sets Cmd (and whatever MapSGL will need), and passes each to Queue.Submit when a capsule arrives.
// From then on until Conn.Respond it belongs to the engine.
type Request struct {
	Cmd nvme.Command    // copied out of the capsule
	CQE nvme.Completion // the engine's answer

	InCapsule []byte             // data that came in the capsule; valid until Respond
	Data      []blockdev.Segment // payload: from Alloc (Region nil), or a volume's view or loan; its array is reused
	SendData  bool               // Respond sends Data to the host first
	Arrived   int64              // when the capsule arrived, by Target.Now; 0: Submit reads the clock

	// Transport is the transport's own part of the request, set once when it is made.
	Transport any

	engine engineState
}

// Len returns the number of bytes in Data.
func (r *Request) Len() int {
	n := 0
	for i := range r.Data {
		n += len(r.Data[i].Bytes)
	}
	return n
}
