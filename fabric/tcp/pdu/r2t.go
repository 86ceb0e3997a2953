package pdu

import "encoding/binary"

// R2TSize is the length of an R2T without its header digest, in bytes.
const R2TSize = 24

// R2T is Ready To Transfer (section 3.6.2.10): the controller asks for a command's data.
type R2T struct {
	Header
	CCCID uint16 // the command
	TTAG  uint16 // the controller's tag, opaque to the host
	R2TO  uint32 // offset in the command's data, bytes
	R2TL  uint32 // length, bytes
}

// ParseR2T reads an R2T; b starts with its common header.
func ParseR2T(b []byte) (R2T, error) {
	if len(b) < R2TSize {
		return R2T{}, shortError("R2T", len(b), R2TSize)
	}
	return R2T{
		Header: HeaderAt(b),
		CCCID:  binary.LittleEndian.Uint16(b[OffCCCID:]),
		TTAG:   binary.LittleEndian.Uint16(b[OffTTAG:]),
		R2TO:   binary.LittleEndian.Uint32(b[OffDATAO:]),
		R2TL:   binary.LittleEndian.Uint32(b[OffDATAL:]),
	}, nil
}

// Append appends the PDU.
func (p *R2T) Append(b []byte) []byte {
	return appendTransfer(b, p.Header, p.CCCID, p.TTAG, p.R2TO, p.R2TL)
}
