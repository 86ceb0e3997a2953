package mad

import "encoding/binary"

// REPPrivateSize is the size of the private data of a REP in bytes.
const REPPrivateSize = 196

// REP is the reply to a request for communication (IBTA 12.6.8).
type REP struct {
	CommIDs
	LocalQKey          uint32
	LocalQPN           uint32
	VendorID           uint32 // 24 bits, spread over three bytes
	LocalEECN          uint32
	StartingPSN        uint32
	ResponderResources uint8
	InitiatorDepth     uint8
	TargetACKDelay     uint8 // 4.096 µs × 2^n
	FailoverAccepted   uint8 // 2 bits
	FlowControl        bool
	RNRRetryCount      uint8 // 3 bits
	SRQ                bool
	LocalCAGUID        uint64
	Options            uint32 // AttributeModifier of the MAD header
	PrivateData        [REPPrivateSize]byte
}

// FailoverUnsupported is the Failover Accepted value that a device without path migration sends in answer to a REQ with
// an alternate path.
const FailoverUnsupported = 1

// AttributeID returns AttrREP.
func (*REP) AttributeID() AttributeID { return AttrREP }

func (m *REP) options() *uint32 { return &m.Options }

func (m *REP) put(b []byte) {
	m.CommIDs.put(b)
	binary.BigEndian.PutUint32(b[8:], m.LocalQKey)
	putUint24(b[12:], m.LocalQPN)
	putUint24(b[16:], m.LocalEECN)
	putUint24(b[20:], m.StartingPSN)
	b[15], b[19], b[23] = byte(m.VendorID>>16), byte(m.VendorID>>8), byte(m.VendorID)
	b[24] = m.ResponderResources
	b[25] = m.InitiatorDepth
	b[26] = m.TargetACKDelay<<3 | m.FailoverAccepted&3<<1 | bit(m.FlowControl, 1)
	b[27] = m.RNRRetryCount<<5 | bit(m.SRQ, 0x10)
	binary.BigEndian.PutUint64(b[28:], m.LocalCAGUID)
	copy(b[36:], m.PrivateData[:])
}

func (m *REP) get(b []byte) {
	m.CommIDs.get(b)
	m.LocalQKey = binary.BigEndian.Uint32(b[8:])
	m.LocalQPN = uint24(b[12:])
	m.LocalEECN = uint24(b[16:])
	m.StartingPSN = uint24(b[20:])
	m.VendorID = uint32(b[15])<<16 | uint32(b[19])<<8 | uint32(b[23])
	m.ResponderResources = b[24]
	m.InitiatorDepth = b[25]
	m.TargetACKDelay = b[26] >> 3
	m.FailoverAccepted = b[26] >> 1 & 3
	m.FlowControl = b[26]&1 != 0
	m.RNRRetryCount = b[27] >> 5
	m.SRQ = b[27]&0x10 != 0
	m.LocalCAGUID = binary.BigEndian.Uint64(b[28:])
	copy(m.PrivateData[:], b[36:])
}

var _ [bodySize - REPPrivateSize]struct{} = [36]struct{}{}
