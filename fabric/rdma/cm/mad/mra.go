package mad

// MRAPrivateSize is the size of the private data of an MRA in bytes.
const MRAPrivateSize = 222

// MRA says that a message arrived and that its answer takes longer (IBTA 12.6.6).
type MRA struct {
	CommIDs
	Message        AnsweredMessage
	ServiceTimeout uint8 // code
	PrivateData    [MRAPrivateSize]byte
}

// AttributeID returns AttrMRA.
func (*MRA) AttributeID() AttributeID { return AttrMRA }

func (m *MRA) put(b []byte) {
	m.CommIDs.put(b)
	b[8] = byte(m.Message) << 6
	b[9] = m.ServiceTimeout << 3
	copy(b[10:], m.PrivateData[:])
}

func (m *MRA) get(b []byte) {
	m.CommIDs.get(b)
	m.Message = AnsweredMessage(b[8] >> 6)
	m.ServiceTimeout = b[9] >> 3
	copy(m.PrivateData[:], b[10:])
}

var _ [bodySize - MRAPrivateSize]struct{} = [10]struct{}{}
