package mad

import "encoding/binary"

// Private data sizes of the service ID resolution messages, in bytes.
const (
	SIDRREQPrivateSize = 216
	SIDRREPPrivateSize = 136
)

// SIDRUnsupported is the SIDR_REP status "service ID not supported" (IBTA 12.11.2).
const SIDRUnsupported = 1

// SIDRREQ asks for the QP of a datagram service (IBTA 12.11.1). RDMA connections don't use it; it is answered so that
// the peer need not wait for its timeouts.
type SIDRREQ struct {
	RequestID   uint32
	PKey        uint16
	ServiceID   uint64
	PrivateData [SIDRREQPrivateSize]byte
}

// AttributeID returns AttrSIDRREQ.
func (*SIDRREQ) AttributeID() AttributeID { return AttrSIDRREQ }

func (m *SIDRREQ) put(b []byte) {
	binary.BigEndian.PutUint32(b, m.RequestID)
	binary.BigEndian.PutUint16(b[4:], m.PKey)
	binary.BigEndian.PutUint64(b[8:], m.ServiceID)
	copy(b[16:], m.PrivateData[:])
}

func (m *SIDRREQ) get(b []byte) {
	m.RequestID = binary.BigEndian.Uint32(b)
	m.PKey = binary.BigEndian.Uint16(b[4:])
	m.ServiceID = binary.BigEndian.Uint64(b[8:])
	copy(m.PrivateData[:], b[16:])
}

// SIDRREP answers a SIDRREQ (IBTA 12.11.2).
type SIDRREP struct {
	RequestID   uint32
	Status      uint8
	InfoLength  uint8
	QPN         uint32
	ServiceID   uint64
	QKey        uint32
	Info        [72]byte
	PrivateData [SIDRREPPrivateSize]byte
}

// AttributeID returns AttrSIDRREP.
func (*SIDRREP) AttributeID() AttributeID { return AttrSIDRREP }

func (m *SIDRREP) put(b []byte) {
	binary.BigEndian.PutUint32(b, m.RequestID)
	b[4] = m.Status
	b[5] = m.InfoLength
	putUint24(b[8:], m.QPN)
	binary.BigEndian.PutUint64(b[12:], m.ServiceID)
	binary.BigEndian.PutUint32(b[20:], m.QKey)
	copy(b[24:96], m.Info[:])
	copy(b[96:], m.PrivateData[:])
}

func (m *SIDRREP) get(b []byte) {
	m.RequestID = binary.BigEndian.Uint32(b)
	m.Status = b[4]
	m.InfoLength = b[5]
	m.QPN = uint24(b[8:])
	m.ServiceID = binary.BigEndian.Uint64(b[12:])
	m.QKey = binary.BigEndian.Uint32(b[20:])
	copy(m.Info[:], b[24:96])
	copy(m.PrivateData[:], b[96:])
}

var (
	_ [bodySize - SIDRREQPrivateSize]struct{} = [16]struct{}{}
	_ [bodySize - SIDRREPPrivateSize]struct{} = [96]struct{}{}
)
