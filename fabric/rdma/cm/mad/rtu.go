package mad

// RTUPrivateSize is the private data of a RTU in bytes.
const RTUPrivateSize = 224

// RTU says ready to use: the active side has taken the REP (IBTA 12.6.9).
type RTU struct {
	CommIDs
	PrivateData [RTUPrivateSize]byte
}

// AttributeID is AttrRTU.
func (*RTU) AttributeID() AttributeID { return AttrRTU }

func (m *RTU) put(b []byte) {
	m.CommIDs.put(b)
	copy(b[8:], m.PrivateData[:])
}

func (m *RTU) get(b []byte) {
	m.CommIDs.get(b)
	copy(m.PrivateData[:], b[8:])
}

var _ [bodySize - RTUPrivateSize]struct{} = [8]struct{}{}
