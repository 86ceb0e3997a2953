package rdma

import (
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Work request identifiers: the kind in the high byte, an index in the low 32 bits.
const (
	kindRecv = iota + 1
	kindPull
	kindResponse
	kindCommand
	kindInvalidate
	kindInline // a command with its data
	kindProbe  // see probe
)

var kindText = [...]string{
	0:              "data of a command", // of the target: a READ other than the last, or a WRITE; the last READ, or the response, is signaled
	kindRecv:       "receive",
	kindPull:       "RDMA READ of the host's data",
	kindResponse:   "response",
	kindCommand:    "command",
	kindInvalidate: "local invalidate",
	kindInline:     "command with data",
	kindProbe:      "asking a silent host for a sign of life",
}

func wrID(kind int, index int) uint64 { return uint64(kind)<<56 | uint64(uint32(index)) }

func splitWRID(id uint64) (kind int, index int) { return int(id >> 56), int(uint32(id)) }

// maxSGE is the maximum number of pieces of memory in one work request; a device may allow fewer.
const maxSGE = 16

// batch collects the work requests of one post. Its slices grow to the size of the largest post, and are reused: an
// idle connection has none.
type batch struct {
	send []verbs.SendWR
	tail []verbs.SendWR // post appends it to send: the SENDs of a batch follow its WRITEs
	recv []verbs.RecvWR
	sges []verbs.SGE
}

func (b *batch) reset() {
	b.send, b.tail, b.recv, b.sges = b.send[:0], b.tail[:0], b.recv[:0], b.sges[:0]
}

// sge appends one entry and returns it as a list. If the backing array has to grow, lists handed out before keep the
// old one.
func (b *batch) sge(e verbs.SGE) []verbs.SGE {
	b.sges = append(b.sges, e)
	n := len(b.sges)
	return b.sges[n-1 : n : n]
}

// since returns the list of the entries appended from index n on.
func (b *batch) since(n int) []verbs.SGE { return b.sges[n:len(b.sges):len(b.sges)] }

// post posts the batch to the queue pair: receives first, so that whatever the peer answers to a send finds its buffer.
func (b *batch) post(qp verbs.QP) error {
	if len(b.recv) > 0 {
		if _, err := qp.PostRecv(b.recv); err != nil {
			return err
		}
	}
	b.send = append(b.send, b.tail...)
	if len(b.send) > 0 {
		if _, err := qp.PostSend(b.send); err != nil {
			return err
		}
	}
	return nil
}
