package pdu

import (
	"encoding/binary"
	"fmt"
)

// TermReqSize is the header length of a terminate request, in bytes.
const TermReqSize = 24

// MaxTermData is the most bytes of the offending header that a terminate request may carry.
const MaxTermData = 128

// FES is the Fatal Error Status of a terminate request (section 3.6.2.4).
type FES uint16

// Fatal error statuses.
const (
	FESInvalidHeader   FES = 1 // FEI is the offset of the field
	FESSequence        FES = 2 // a PDU that may not come now, or data out of order
	FESHeaderDigest    FES = 3 // FEI is the received digest
	FESOutOfRange      FES = 4 // data outside the requested range
	FESLimitExceeded   FES = 5 // more data, or more R2Ts, than agreed
	FESUnsupportedParm FES = 6 // FEI is the offset of the parameter
)

var fesNames = [...]string{"status 0", "invalid PDU header field", "PDU sequence error",
	"header digest error", "data transfer out of range", "data transfer or R2T limit exceeded",
	"unsupported parameter"}

// String returns the specification's name of the status.
func (f FES) String() string {
	if int(f) < len(fesNames) {
		return fesNames[f]
	}
	return fmt.Sprintf("fatal error status %#x", uint16(f))
}

// TermReq is H2CTermReq or C2HTermReq. It never carries a digest.
type TermReq struct {
	Type    Type // TypeH2CTermReq or TypeC2HTermReq
	FES     FES
	FEI     uint32 // fatal error information, see FES
	Offence []byte // the offending header, or its beginning; at most MaxTermData bytes
}

// Offsets of fields of a terminate request.
const (
	offFES = 8
	offFEI = 10
)

// ParseTermReq reads a whole terminate request; b starts with its common header and holds as
// many bytes as PLEN says. Offence refers to b.
func ParseTermReq(b []byte) (TermReq, error) {
	h := HeaderAt(b)
	if h.PLEN < TermReqSize || h.PLEN > TermReqSize+MaxTermData {
		return TermReq{}, Invalid(OffPLEN, "PLEN of "+h.Type.String())
	}
	if len(b) < int(h.PLEN) {
		return TermReq{}, shortError("terminate request", len(b), int(h.PLEN))
	}
	return TermReq{
		Type: h.Type, FES: FES(binary.LittleEndian.Uint16(b[offFES:])),
		FEI: binary.LittleEndian.Uint32(b[offFEI:]), Offence: b[TermReqSize:h.PLEN],
	}, nil
}

// Append appends the whole PDU. It cuts Offence to MaxTermData bytes.
func (p TermReq) Append(b []byte) []byte {
	data := p.Offence[:min(len(p.Offence), MaxTermData)]
	b = Header{Type: p.Type, HLEN: TermReqSize, PLEN: uint32(TermReqSize + len(data))}.Append(b)
	b = binary.LittleEndian.AppendUint16(b, uint16(p.FES))
	b = binary.LittleEndian.AppendUint32(b, p.FEI)
	var reserved [TermReqSize - offFEI - 4]byte
	b = append(b, reserved[:]...)
	return append(b, data...)
}
