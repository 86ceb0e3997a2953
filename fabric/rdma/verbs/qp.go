package verbs

import "net/netip"

// QPType is the transport service of a queue pair.
type QPType uint8

// Services.
const (
	RC QPType = iota + 1 // reliable connection
	UD                   // unreliable datagram: neither offered nor used here
)

// QPState is the state of a queue pair (IBTA 10.3.1).
//
// SQD (send queue drained) and SQE are not offered: SQD is for changing the path of a live connection, which no
// consumer here does, and SQE belongs to unreliable services.
type QPState uint8

// States.
const (
	Reset QPState = iota
	Init
	RTR // ready to receive
	RTS // ready to send
	Err // work is flushed, packets are dropped
)

// QPInitAttr is what CreateQP needs (ibv_qp_init_attr).
type QPInitAttr struct {
	Type         QPType
	SendCQ       CQ
	RecvCQ       CQ
	MaxSendWR    int
	MaxRecvWR    int
	MaxSendSGE   int
	MaxRecvSGE   int
	SQSigAll     bool             // every send is signaled
	EventHandler func(AsyncEvent) // may be nil
}

// QPAttr are the attributes that Modify sets and Query returns (ibv_qp_attr). A transition uses the fields in this
// table and ignores the others:
//
//	RESET → INIT  PKeyIndex is fixed at 0; Access.
//	INIT  → RTR   Remote, PeerVendorID, VendorOptions, TrafficClass, DestQPN, PathMTU, RQPSN, MaxDestRdAtomic,
//	              MinRNRTimer.
//	RTR   → RTS   SQPSN, Timeout, RetryCnt, RNRRetry, MaxRdAtomic.
//	any   → ERR   none
//	any   → RESET none
type QPAttr struct {
	State           QPState
	Access          Access
	Remote          netip.Addr // the address vector: the peer's GID as an address
	PeerVendorID    uint32     // the peer's DeviceAttr.VendorID, as exchanged by CM; 0 if unknown
	VendorOptions   uint32     // agreed with a peer of the same vendor (ibv_ece.options)
	TrafficClass    uint8
	DestQPN         uint32
	PathMTU         MTU
	EvenSends       bool   // packets of a SEND are of one size, so that many SENDs can be sent as one train, as devices of one vendor may agree (Query only)
	WriteSendMTU    int    // bytes of a WRITE that share a packet with a short SEND that follows it: 0, unless devices of one vendor have agreed on that (Query only)
	RQPSN           uint32 // first PSN expected from the peer, 24 bits
	SQPSN           uint32 // first PSN sent, 24 bits
	MaxDestRdAtomic uint8  // READs and atomics served at once
	MaxRdAtomic     uint8  // READs and atomics outstanding at once
	MinRNRTimer     uint8  // code of IBTA table 45
	Timeout         uint8  // local ACK timeout: 4.096 µs × 2^n, 0 for none
	RetryCnt        uint8  // 0..7
	RNRRetry        uint8  // 0..7, 7 means unlimited
}

// QP is a queue pair.
type QP interface {
	QPNum() uint32
	// Modify moves the QP to attr.State; a transition that isn't in the table is ErrInvalid. Where only RDMA-CM can
	// connect, those to RTR and RTS are ErrUnsupported.
	Modify(attr QPAttr) error
	Query() QPAttr
	// PostSend queues work requests in order. If err is not nil, n were accepted, and wrs[n] is the one that failed
	// (ErrNoMemory: the queue is full).
	PostSend(wrs []SendWR) (n int, err error)
	// PostRecv queues receive buffers in order, with the same return values.
	PostRecv(wrs []RecvWR) (n int, err error)
	// Destroy frees the QP. Outstanding work gives no completion, and those not yet polled are gone.
	Destroy() error
}

// AsyncEventType is an event that doesn't belong to a work request (ibv_event_type).
type AsyncEventType uint8

// Events of a QP.
const (
	EventQPFatal  AsyncEventType = iota + 1 // the QP moved to ERR by itself
	EventCommEst                            // the peer's first packet arrived, in RTR or RTS
	EventQPAccess                           // a remote access or request error moved it to ERR
)

// AsyncEvent is an event on a QP.
type AsyncEvent struct {
	Type AsyncEventType
	QP   QP
}
