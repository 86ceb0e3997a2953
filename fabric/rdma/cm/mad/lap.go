package mad

// LAP asks to load an alternate path (IBTA 12.8.1). RoCE has no path migration: a LAP is recognized so that it can be
// refused, and only its IDs are decoded.
type LAP struct {
	CommIDs
	Rest [bodySize - 8]byte
}

// AttributeID returns AttrLAP.
func (*LAP) AttributeID() AttributeID { return AttrLAP }

func (m *LAP) put(b []byte) {
	m.CommIDs.put(b)
	copy(b[8:], m.Rest[:])
}

func (m *LAP) get(b []byte) {
	m.CommIDs.get(b)
	copy(m.Rest[:], b[8:])
}

// Statuses of an APR (IBTA 12.8.2.1).
const (
	APRInvalidCommID = 1
	APRUnsupported   = 2
)

// APR answers a LAP (IBTA 12.8.2).
type APR struct {
	CommIDs
	InfoLength uint8
	Status     uint8
	Rest       [bodySize - 10]byte
}

// AttributeID returns AttrAPR.
func (*APR) AttributeID() AttributeID { return AttrAPR }

func (m *APR) put(b []byte) {
	m.CommIDs.put(b)
	b[8], b[9] = m.InfoLength, m.Status
	copy(b[10:], m.Rest[:])
}

func (m *APR) get(b []byte) {
	m.CommIDs.get(b)
	m.InfoLength, m.Status = b[8], b[9]
	copy(m.Rest[:], b[10:])
}
