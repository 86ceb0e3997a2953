package rc

import (
	"fmt"
	"math/rand/v2"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Peer is what one side must know about the other's queue pair. How they exchange it is up to
// the programs; the usual way is a TCP connection.
type Peer struct {
	QPN uint32
	PSN uint32 // of its first packet
	GID verbs.GID
}

// NewQP makes a queue pair in state INIT, in which receives may already be posted, and returns
// it with what the peer must know about it. access is what the peer may do with our memory.
func NewQP(dev verbs.Device, r *Resources, depth int, access verbs.Access) (verbs.QP, Peer, error) {
	qp, err := r.PD.CreateQP(r.QPInit(depth))
	if err != nil {
		return nil, Peer{}, err
	}
	if err := qp.Modify(verbs.QPAttr{State: verbs.Init, Access: access}); err != nil {
		return nil, Peer{}, err
	}
	return qp, Peer{QPN: qp.QPNum(), PSN: rand.Uint32() & 0xffffff, GID: verbs.GIDFrom(dev.Attr().Addr)}, nil
}

// Connect moves a queue pair from INIT via RTR, in which it receives, to RTS, in which it also
// sends. reads is how many READs and atomics either side may have outstanding.
func Connect(qp verbs.QP, self, peer Peer, mtu verbs.MTU, reads uint8) error {
	attr := verbs.QPAttr{
		Remote: peer.GID.Addr(), DestQPN: peer.QPN, PathMTU: mtu,
		RQPSN: peer.PSN, SQPSN: self.PSN,
		MaxDestRdAtomic: reads, MaxRdAtomic: reads,
		MinRNRTimer: 12, // 0.64 ms
		Timeout:     14, // 67 ms
		RetryCnt:    7, RNRRetry: 7,
	}
	for _, attr.State = range []verbs.QPState{verbs.RTR, verbs.RTS} {
		if err := qp.Modify(attr); err != nil {
			return fmt.Errorf("connect to QP %#x at %s: %w", peer.QPN, attr.Remote, err)
		}
	}
	return nil
}
