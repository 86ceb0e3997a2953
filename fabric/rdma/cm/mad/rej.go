package mad

import (
	"encoding/binary"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Sizes inside a REJ in bytes.
const (
	REJPrivateSize = 148
	ARISize        = 72 // additional reject information
)

// REJ refuses a request or a reply, or ends an attempt (IBTA 12.6.7). The local communication ID is 0 if a REQ is
// refused immediately.
type REJ struct {
	CommIDs
	Message     AnsweredMessage
	InfoLength  uint8 // bytes of ARI in use, 7 bits
	Reason      verbs.RejectReason
	ARI         [ARISize]byte
	PrivateData [REJPrivateSize]byte
}

// AttributeID returns AttrREJ.
func (*REJ) AttributeID() AttributeID { return AttrREJ }

func (m *REJ) put(b []byte) {
	m.CommIDs.put(b)
	b[8] = byte(m.Message) << 6
	b[9] = m.InfoLength << 1
	binary.BigEndian.PutUint16(b[10:], uint16(m.Reason))
	copy(b[12:84], m.ARI[:])
	copy(b[84:], m.PrivateData[:])
}

func (m *REJ) get(b []byte) {
	m.CommIDs.get(b)
	m.Message = AnsweredMessage(b[8] >> 6)
	m.InfoLength = b[9] >> 1
	m.Reason = verbs.RejectReason(binary.BigEndian.Uint16(b[10:]))
	copy(m.ARI[:], b[12:84])
	copy(m.PrivateData[:], b[84:])
}

// SetGUID sets the ARI to the CA GUID of the sender, as reason 4 (timeout) requires: the receiver finds the connection
// by it if it hasn't sent its own ID yet.
func (m *REJ) SetGUID(guid uint64) {
	binary.BigEndian.PutUint64(m.ARI[:], guid)
	m.InfoLength = 8
}

// GUID returns the CA GUID that SetGUID put into the ARI.
func (m *REJ) GUID() uint64 { return binary.BigEndian.Uint64(m.ARI[:]) }

var (
	_ [bodySize - REJPrivateSize]struct{} = [84]struct{}{}
	_ [84 - 12]struct{}                   = [ARISize]struct{}{}
)
