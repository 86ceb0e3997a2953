package rc

import (
	"fmt"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// OpenNIC opens the software RNIC of address bind or, if that is not given, of the address from
// which peer is reached. Closing it frees everything that was made on it.
func OpenNIC(bind, peer netip.Addr) (*softrnic.RNIC, error) {
	if bind.IsValid() {
		return softrnic.Open(bind, softrnic.Config{})
	}
	return softrnic.OpenFor(peer, softrnic.Config{})
}

// Resources are what a queue pair needs.
type Resources struct {
	*Completions
	PD  verbs.PD
	MR  verbs.MR // of Buf
	Buf []byte
}

// Allocate makes the resources on dev: size bytes of memory, registered for access, and room for
// the completions of depth sends and as many receives.
func Allocate(dev verbs.Device, size, depth int, access verbs.Access) (*Resources, error) {
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, size)
	mr, err := pd.RegMR(buf, access)
	if err != nil {
		return nil, err
	}
	c, err := NewCompletions(dev, 2*depth)
	if err != nil {
		return nil, err
	}
	return &Resources{Completions: c, PD: pd, MR: mr, Buf: buf}, nil
}

// SGE describes n bytes of Buf for a work request.
func (r *Resources) SGE(offset, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: r.MR.Addr() + uint64(offset), Length: uint32(n), LKey: r.MR.LKey()}}
}

// QPInit describes a queue pair for depth sends and as many receives.
func (r *Resources) QPInit(depth int) verbs.QPInitAttr {
	return verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: r.CQ, RecvCQ: r.CQ,
		MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1,
		SQSigAll: true, // every send gives a completion
	}
}

// Send posts one send work request.
func Send(qp verbs.QP, wr verbs.SendWR) error {
	if _, err := qp.PostSend([]verbs.SendWR{wr}); err != nil {
		return fmt.Errorf("post a send: %w", err)
	}
	return nil
}

// Recv posts one receive.
func Recv(qp verbs.QP, wr verbs.RecvWR) error {
	if _, err := qp.PostRecv([]verbs.RecvWR{wr}); err != nil {
		return fmt.Errorf("post a receive: %w", err)
	}
	return nil
}
