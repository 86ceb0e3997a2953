package cm

// LAP asks to load an alternate path (IBTA 12.8.1). RoCE has no path migration: it is
// recognised so that it can be counted and dropped, and only its IDs are read.
type LAP struct {
	CommIDs
	Rest [bodySize - 8]byte
}

// AttributeID is AttrLAP.
func (*LAP) AttributeID() AttributeID { return AttrLAP }

func (m *LAP) put(b []byte) {
	m.CommIDs.put(b)
	copy(b[8:], m.Rest[:])
}

func (m *LAP) get(b []byte) {
	m.CommIDs.get(b)
	copy(m.Rest[:], b[8:])
}

// APR answers a LAP (IBTA 12.8.2); see there.
type APR struct {
	CommIDs
	Rest [bodySize - 8]byte
}

// AttributeID is AttrAPR.
func (*APR) AttributeID() AttributeID { return AttrAPR }

func (m *APR) put(b []byte) {
	m.CommIDs.put(b)
	copy(b[8:], m.Rest[:])
}

func (m *APR) get(b []byte) {
	m.CommIDs.get(b)
	copy(m.Rest[:], b[8:])
}
