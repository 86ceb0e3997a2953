package mad

import (
	"encoding/binary"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// REQPrivateSize is the size of the private data of a REQ in bytes, including the RDMA-CM header.
const REQPrivateSize = 92

// REQ is a request for communication (IBTA 12.6.5). Timeouts are 5-bit codes (4.096 µs × 2^n),
// PSNs, QPNs and EECNs have 24 bits.
type REQ struct {
	LocalCommID        uint32
	VendorID           uint32 // 24 bits
	ServiceID          uint64
	LocalCAGUID        uint64
	LocalQKey          uint32
	LocalQPN           uint32
	ResponderResources uint8 // READs and atomics that the sender serves
	LocalEECN          uint32
	InitiatorDepth     uint8 // READs and atomics that the sender has outstanding
	RemoteEECN         uint32
	RemoteResponse     uint8 // Remote CM Response Timeout, code
	TransportType      uint8 // 2 bits
	FlowControl        bool  // End-to-End Flow Control
	StartingPSN        uint32
	LocalResponse      uint8 // Local CM Response Timeout, code
	RetryCount         uint8 // 3 bits
	PKey               uint16
	PathMTU            verbs.MTU // 4 bits
	RDCExists          bool
	RNRRetryCount      uint8 // 3 bits
	MaxCMRetries       uint8 // 4 bits
	SRQ                bool
	ExtendedTransport  uint8 // 3 bits
	Primary, Alternate Path
	AlternateSAP       bool   // subnet administrator bit after the alternate ACK timeout
	Options            uint32 // AttributeModifier of the MAD header
	PrivateData        [REQPrivateSize]byte
}

// TransportRC is the Transport Service Type of reliable connections.
const TransportRC = 0

// pathSize is the length of Path on the wire.
const pathSize = 44

// Path is a path record inside a REQ.
type Path struct {
	LocalLID, RemoteLID uint16
	LocalGID, RemoteGID verbs.GID
	FlowLabel           uint32 // 20 bits
	PacketRate          uint8  // 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	ACKTimeout          uint8 // Local ACK Timeout: 4.096 µs × 2^n
}

// AttributeID returns AttrREQ.
func (*REQ) AttributeID() AttributeID { return AttrREQ }

func (m *REQ) options() *uint32 { return &m.Options }

func (m *REQ) put(b []byte) {
	be := binary.BigEndian
	be.PutUint32(b[0:], m.LocalCommID)
	putUint24(b[5:], m.VendorID)
	be.PutUint64(b[8:], m.ServiceID)
	be.PutUint64(b[16:], m.LocalCAGUID)
	be.PutUint32(b[28:], m.LocalQKey)
	putUint24(b[32:], m.LocalQPN)
	b[35] = m.ResponderResources
	putUint24(b[36:], m.LocalEECN)
	b[39] = m.InitiatorDepth
	putUint24(b[40:], m.RemoteEECN)
	b[43] = m.RemoteResponse<<3 | m.TransportType&3<<1 | bit(m.FlowControl, 1)
	putUint24(b[44:], m.StartingPSN)
	b[47] = m.LocalResponse<<3 | m.RetryCount&7
	be.PutUint16(b[48:], m.PKey)
	b[50] = byte(m.PathMTU)<<4 | bit(m.RDCExists, 8) | m.RNRRetryCount&7
	b[51] = m.MaxCMRetries<<4 | bit(m.SRQ, 8) | m.ExtendedTransport&7
	m.Primary.put(b[52:])
	m.Alternate.put(b[96:])
	b[139] |= bit(m.AlternateSAP, 4)
	copy(b[140:], m.PrivateData[:])
}

func (m *REQ) get(b []byte) {
	be := binary.BigEndian
	m.LocalCommID = be.Uint32(b[0:])
	m.VendorID = uint24(b[5:])
	m.ServiceID = be.Uint64(b[8:])
	m.LocalCAGUID = be.Uint64(b[16:])
	m.LocalQKey = be.Uint32(b[28:])
	m.LocalQPN = uint24(b[32:])
	m.ResponderResources = b[35]
	m.LocalEECN = uint24(b[36:])
	m.InitiatorDepth = b[39]
	m.RemoteEECN = uint24(b[40:])
	m.RemoteResponse = b[43] >> 3
	m.TransportType = b[43] >> 1 & 3
	m.FlowControl = b[43]&1 != 0
	m.StartingPSN = uint24(b[44:])
	m.LocalResponse = b[47] >> 3
	m.RetryCount = b[47] & 7
	m.PKey = be.Uint16(b[48:])
	m.PathMTU = verbs.MTU(b[50] >> 4)
	m.RDCExists = b[50]&8 != 0
	m.RNRRetryCount = b[50] & 7
	m.MaxCMRetries = b[51] >> 4
	m.SRQ = b[51]&8 != 0
	m.ExtendedTransport = b[51] & 7
	m.Primary.get(b[52:])
	m.Alternate.get(b[96:])
	m.AlternateSAP = b[139]&4 != 0
	copy(m.PrivateData[:], b[140:])
}

func (p *Path) put(b []byte) {
	be := binary.BigEndian
	be.PutUint16(b[0:], p.LocalLID)
	be.PutUint16(b[2:], p.RemoteLID)
	copy(b[4:20], p.LocalGID[:])
	copy(b[20:36], p.RemoteGID[:])
	be.PutUint32(b[36:], p.FlowLabel<<12|uint32(p.PacketRate&0x3f))
	b[40] = p.TrafficClass
	b[41] = p.HopLimit
	b[42] = p.SL<<4 | bit(p.SubnetLocal, 8)
	b[43] = p.ACKTimeout << 3
}

func (p *Path) get(b []byte) {
	be := binary.BigEndian
	p.LocalLID = be.Uint16(b[0:])
	p.RemoteLID = be.Uint16(b[2:])
	copy(p.LocalGID[:], b[4:20])
	copy(p.RemoteGID[:], b[20:36])
	word := be.Uint32(b[36:])
	p.FlowLabel = word >> 12
	p.PacketRate = uint8(word & 0x3f)
	p.TrafficClass = b[40]
	p.HopLimit = b[41]
	p.SL = b[42] >> 4
	p.SubnetLocal = b[42]&8 != 0
	p.ACKTimeout = b[43] >> 3
}

// The layout leaves no gap between the paths, the private data and the end of the MAD.
var (
	_ [96 - 52]struct{}                   = [pathSize]struct{}{}
	_ [140 - 96]struct{}                  = [pathSize]struct{}{}
	_ [bodySize - REQPrivateSize]struct{} = [140]struct{}{}
)
