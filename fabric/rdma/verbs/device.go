package verbs

import "net/netip"

// Device is an opened RDMA device (ibv_context) with one port.
type Device interface {
	// Attr returns what the device is and can do; the values don't change while it is open.
	Attr() DeviceAttr

	// AllocPD makes a protection domain.
	AllocPD() (PD, error)

	// CreateCQ makes a completion queue of at least cqe entries. handler may be nil for a CQ that is only polled;
	// otherwise it is called once after each arming (CQ.ReqNotify) when a completion arrives.
	CreateCQ(cqe int, handler func(CQ)) (CQ, error)

	// Close destroys everything that still exists on the device. Work in progress is lost. A second Close returns
	// ErrClosed, and so do the methods that would destroy one of these objects.
	Close() error
}

// DeviceAttr describes a device (ibv_device_attr and ibv_port_attr in one).
type DeviceAttr struct {
	Name          string     // for people: "roce@192.0.2.1", "mlx5_0"
	VendorID      uint32     // 24 bits, of the vendor
	NodeGUID      uint64     // unique, stable while the device is open
	Addr          netip.Addr // the address behind the port's GID
	ActiveMTU     MTU        // path MTU that the port supports; 0: the transport has none
	MaxQP         int
	MaxQPWR       int   // work requests per queue
	MaxSGE        int   // scatter/gather entries per work request
	MaxSGERd      int   // the same of a READ (max_sge_rd): 1 with iWARP
	MaxCQE        int   // entries of a completion queue
	MaxQPRdAtom   int   // READs and atomics a QP can serve as responder
	MaxQPInitAtom int   // READs and atomics a QP can have outstanding as initiator
	MaxInline     int   // bytes of inline data
	AckDelay      uint8 // local ACK delay, 4.096 µs × 2^n
}

// MTU is a path MTU in the encoding of the specification: payload bytes are 128 << MTU.
type MTU uint8

// Path MTUs (IBTA 9.5.3).
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes returns the largest payload of a packet; 0 for a value outside the table.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// GID is the 16-byte address of a port. RoCEv2 uses the IPv6 address, or the IPv4 address
// mapped into ::ffff:0:0/96.
type GID [16]byte

// GIDFrom returns the GID of an IP address.
func GIDFrom(a netip.Addr) GID { return GID(a.As16()) }

// Addr returns the IP address behind g, unmapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }
