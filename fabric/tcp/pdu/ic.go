package pdu

import "encoding/binary"

// ICSize is the length of an ICReq and of an ICResp, in bytes.
const ICSize = 128

// ICReq is the Initialize Connection Request, the first PDU of the host (section 3.6.2.2).
type ICReq struct {
	PFV     uint16 // PDU format version, 0
	HPDA    uint8  // alignment of data in PDUs to the host: 0-based dwords, at most 31
	Digests Digests
	MAXR2T  uint32 // R2Ts outstanding per command, 0-based
}

// ICResp is the Initialize Connection Response (section 3.6.2.3).
type ICResp struct {
	PFV        uint16
	CPDA       uint8 // alignment of data in PDUs to the controller: 0-based dwords, at most 31
	Digests    Digests
	MAXH2CDATA uint32 // most data in one H2CData PDU, in bytes; a multiple of 4, at least 4096
}

// minH2CData is the smallest MAXH2CDATA.
const minH2CData = 4096

// Offsets of fields of the initialization PDUs, from the start of the PDU.
const (
	offPFV    = 8
	offAlign  = 10
	offDigest = 11
	offLimit  = 12
)

// ParseICReq reads an ICReq; b starts with its common header. Reserved bytes are ignored.
func ParseICReq(b []byte) (ICReq, error) {
	if len(b) < ICSize {
		return ICReq{}, shortError("ICReq", len(b), ICSize)
	}
	return ICReq{
		PFV: binary.LittleEndian.Uint16(b[offPFV:]), HPDA: b[offAlign], Digests: Digests(b[offDigest]),
		MAXR2T: binary.LittleEndian.Uint32(b[offLimit:]),
	}, nil
}

// Check checks whether a controller can accept p.
func (p ICReq) Check() *FieldError {
	switch {
	case p.PFV != 0:
		return &FieldError{FESUnsupportedParm, offPFV, "PFV"}
	case p.HPDA > MaxAlignment:
		return Invalid(offAlign, "HPDA")
	}
	return nil
}

// Append appends the whole PDU.
func (p ICReq) Append(b []byte) []byte {
	return appendIC(b, TypeICReq, p.PFV, p.HPDA, p.Digests, p.MAXR2T)
}

// ParseICResp reads an ICResp; b starts with its common header. Reserved bytes are ignored.
func ParseICResp(b []byte) (ICResp, error) {
	if len(b) < ICSize {
		return ICResp{}, shortError("ICResp", len(b), ICSize)
	}
	return ICResp{
		PFV: binary.LittleEndian.Uint16(b[offPFV:]), CPDA: b[offAlign], Digests: Digests(b[offDigest]),
		MAXH2CDATA: binary.LittleEndian.Uint32(b[offLimit:]),
	}, nil
}

// Check checks whether a host that asked for the given digests can accept p, which must grant these
// and no others.
func (p ICResp) Check(asked Digests) *FieldError {
	switch got := p.Digests & allDigests; {
	case p.PFV != 0:
		return &FieldError{FESUnsupportedParm, offPFV, "PFV"}
	case p.CPDA > MaxAlignment:
		return Invalid(offAlign, "CPDA")
	case got != asked:
		err := &FieldError{FESUnsupportedParm, offDigest, "DGST is " + got.String() + " where " + asked.String() + " was asked for"}
		if got&^asked != 0 { // not refused, but granted unasked (section 3.3.1.1)
			err.FES = FESInvalidHeader
		}
		return err
	case p.MAXH2CDATA < minH2CData || p.MAXH2CDATA%4 != 0:
		return Invalid(offLimit, "MAXH2CDATA")
	}
	return nil
}

// Append appends the whole PDU.
func (p ICResp) Append(b []byte) []byte {
	return appendIC(b, TypeICResp, p.PFV, p.CPDA, p.Digests, p.MAXH2CDATA)
}

func appendIC(b []byte, t Type, pfv uint16, align uint8, d Digests, limit uint32) []byte {
	b = Header{Type: t, HLEN: ICSize, PLEN: ICSize}.Append(b)
	b = binary.LittleEndian.AppendUint16(b, pfv)
	b = append(b, align, byte(d))
	b = binary.LittleEndian.AppendUint32(b, limit)
	var reserved [ICSize - offLimit - 4]byte
	return append(b, reserved[:]...)
}
