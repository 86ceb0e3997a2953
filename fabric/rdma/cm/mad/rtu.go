package mad

// RTUPrivateSize is the size of the private data of an RTU in bytes.
const RTUPrivateSize = 224

// RTU says that the connection is ready to use: the active side has accepted the REP (IBTA 12.6.9).
type RTU struct {
	CommIDs
	PrivateData [RTUPrivateSize]byte
}

// AttributeID returns AttrRTU.
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
