package verbs

import (
	"net/netip"
	"time"
)

// ConnectionManager makes RDMA-CM identifiers (rdma_cm, port space RDMA_PS_TCP).
type ConnectionManager interface {
	// CreateID makes an identifier (rdma_create_id). Its events go to handler, one at a time.
	CreateID(handler CMHandler) (CMID, error)
}

// CMHandler handles the events of an identifier, in order, in the provider's context: it may call any method, and must
// not block. A connection request to a listener arrives as CMConnectRequest with a new ID, whose events go to the
// listener's handler until SetHandler.
type CMHandler func(CMEvent)

// CMID is a communication identifier (rdma_cm_id).
type CMID interface {
	// Device returns the device that the identifier is bound to; nil before ADDR_RESOLVED, and for a listener that is
	// not bound to a single device.
	Device() Device
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
	SetHandler(CMHandler)

	// ResolveAddr binds the identifier to the device that reaches dst, and to src if that is valid. The event is
	// CMAddrResolved or CMAddrError.
	ResolveAddr(src netip.Addr, dst netip.AddrPort, timeout time.Duration) error
	// ResolveRoute resolves the route to the peer. The event is CMRouteResolved or CMRouteError.
	ResolveRoute(timeout time.Duration) error
	// PathMTU returns the largest path MTU that a new connection with the peer could have, as far as is known, and the
	// VendorOptions, some of which may take longer packets; 0 if there is no peer yet. They change when the path does.
	PathMTU() (mtu MTU, vendorOptions uint32)

	// CreateQP makes an RC queue pair in state INIT, which the identifier moves through its states as the connection is
	// established and ends (rdma_create_qp). It allows its peer everything that a key does; READs and atomics only if
	// there are responder resources.
	CreateQP(pd PD, init QPInitAttr) (QP, error)
	QP() QP

	// Connect sends the REQ. The event is CMEstablished with the peer's parameters, CMRejected, CMUnreachable or
	// CMConnectError, or CMDisconnected if the peer accepts and then ends the connection before it is established here.
	Connect(ConnParam) error

	// Listen accepts connection requests at local; a zero address means every device of the manager, and port 0 a free
	// port, which LocalAddr returns. At most backlog requests wait for Accept or Reject.
	Listen(local netip.AddrPort, backlog int) error
	// Accept answers a connection request: the QP moves to RTS and the REP is sent. InitiatorDepth must not exceed that
	// of the request; a provider may lower it, or refuse. The event is CMEstablished, when the peer confirms or sends
	// its first packet, or CMRejected, CMUnreachable or CMDisconnected if the connection ends before that.
	Accept(ConnParam) error
	// Reject answers a connection request with reason 28 (consumer defined) and private data.
	Reject(private []byte) error

	// Disconnect moves the QP to ERR and sends the DREQ, or the DREP if a DREQ was received. The events are
	// CMDisconnected, then, with InfiniBand and RoCE, CMTimewaitExit.
	Disconnect() error
	// Destroy frees the identifier and its QP. No event follows, except one whose handler is already being called. The
	// QP is gone when any call returns, also one that finds another at work.
	Destroy() error
}

// ConnParam are the parameters of a connection (rdma_conn_param). In an event they are the peer's, from the receiver's
// point of view.
type ConnParam struct {
	PrivateData        []byte // valid during the event's handler
	ResponderResources uint8  // READs and atomics that this side serves; 0 for none
	InitiatorDepth     uint8  // READs and atomics that this side has outstanding; 0 for none
	FlowControl        bool
	// RetryCount is how often either side tries again if packets aren't acknowledged in time, 0..7; with 0 the first
	// time-out may end the connection. Accept ignores it: that of the request counts.
	RetryCount uint8
	// RNRRetryCount is how often the peer sends a message again for which there is no receive here, 0..7; 7 means
	// unlimited.
	RNRRetryCount uint8
	// PathMTU is, with Connect, the largest to ask for, 0 for the path's; with CMRouteResolved, that of the path, as
	// far as it is known; and with CMConnectRequest, what the peer asks for. It is 0 with transports that have none.
	PathMTU MTU
}

// CMEventType is rdma_cm_event_type.
type CMEventType uint8

// Events.
const (
	CMAddrResolved CMEventType = iota + 1
	CMAddrError
	CMRouteResolved
	CMRouteError
	CMConnectRequest
	CMConnectError
	CMUnreachable
	CMRejected
	CMEstablished
	CMDisconnected
	CMDeviceRemoval // the device is being closed or removed; comes to listeners too, and the consumer destroys the identifier
	CMTimewaitExit
)

// RejectReason is the reason of a REJ (IBTA table 109). Other transports report RejectInvalidServiceID if nobody
// listens, and RejectConsumer for what the peer's consumer rejects.
type RejectReason uint16

// The reasons that a consumer may see; others keep their number.
const (
	RejectNoQP             RejectReason = 1
	RejectNoResources      RejectReason = 3
	RejectTimeout          RejectReason = 4
	RejectUnsupported      RejectReason = 5
	RejectInvalidServiceID RejectReason = 8
	RejectStale            RejectReason = 10
	RejectInvalidGID       RejectReason = 12
	RejectInvalidMTU       RejectReason = 26
	RejectConsumer         RejectReason = 28
)

// CMEvent is an event of ID.
type CMEvent struct {
	Type   CMEventType
	ID     CMID         // for CMConnectRequest the new identifier
	Listen CMID         // CMConnectRequest: the listener
	Param  ConnParam    // CMConnectRequest, CMEstablished, CMRejected (private data)
	Reason RejectReason // CMRejected
	Err    error        // the …Error events, CMUnreachable
}
