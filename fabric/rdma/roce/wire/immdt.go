package wire

import "encoding/binary"

// Lengths of the headers of the last packet of a message.
const (
	ImmDtSize = 4
	IETHSize  = 4
)

// ImmDt is the immediate data of a message, as a number (IBTA 9.3.6).
type ImmDt uint32

// Append appends the header.
func (h ImmDt) Append(b []byte) []byte { return binary.BigEndian.AppendUint32(b, uint32(h)) }

// ParseImmDt parses the header.
func ParseImmDt(h *ImmDt, b []byte) error {
	if len(b) < ImmDtSize {
		return ErrShort
	}
	*h = ImmDt(binary.BigEndian.Uint32(b))
	return nil
}

// IETH names the R_Key that a SEND with Invalidate invalidates (IBTA 9.3.7).
type IETH struct {
	RKey uint32
}

// Append appends the header.
func (h *IETH) Append(b []byte) []byte { return binary.BigEndian.AppendUint32(b, h.RKey) }

// ParseIETH parses the header.
func ParseIETH(h *IETH, b []byte) error {
	if len(b) < IETHSize {
		return ErrShort
	}
	h.RKey = binary.BigEndian.Uint32(b)
	return nil
}
