package mad

// Private data sizes of the messages that end a connection, in bytes.
const (
	DREQPrivateSize = 220
	DREPPrivateSize = 224
)

// DREQ asks to end a connection (IBTA 12.6.10). RemoteQPN is the receiver's QP.
type DREQ struct {
	CommIDs
	RemoteQPN   uint32
	PrivateData [DREQPrivateSize]byte
}

// AttributeID returns AttrDREQ.
func (*DREQ) AttributeID() AttributeID { return AttrDREQ }

func (m *DREQ) put(b []byte) {
	m.CommIDs.put(b)
	putUint24(b[8:], m.RemoteQPN)
	copy(b[12:], m.PrivateData[:])
}

func (m *DREQ) get(b []byte) {
	m.CommIDs.get(b)
	m.RemoteQPN = uint24(b[8:])
	copy(m.PrivateData[:], b[12:])
}

// DREP answers a DREQ (IBTA 12.6.11).
type DREP struct {
	CommIDs
	PrivateData [DREPPrivateSize]byte
}

// AttributeID returns AttrDREP.
func (*DREP) AttributeID() AttributeID { return AttrDREP }

func (m *DREP) put(b []byte) {
	m.CommIDs.put(b)
	copy(b[8:], m.PrivateData[:])
}

func (m *DREP) get(b []byte) {
	m.CommIDs.get(b)
	copy(m.PrivateData[:], b[8:])
}

var (
	_ [bodySize - DREQPrivateSize]struct{} = [12]struct{}{}
	_ [bodySize - DREPPrivateSize]struct{} = [8]struct{}{}
)
