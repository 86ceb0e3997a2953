package wire

import "encoding/binary"

// FETHSize is the length of the flush extended transport header.
const FETHSize = 4

// FETH says how far a FLUSH moves data, and for which memory (IBTA annex A19).
type FETH struct {
	Placement   Placement
	Selectivity Selectivity
}

// Placement is where data has to be when a FLUSH is answered; the values can be combined.
type Placement uint8

// Placements.
const (
	GlobalVisibility Placement = 1 << iota
	Persistence
)

// Selectivity is the memory that a FLUSH covers.
type Selectivity uint8

// Selectivities.
const (
	SelectRange Selectivity = iota // the range in the RETH
	SelectMR                       // the whole memory region of the R_Key
)

// Fields of the header's word.
const (
	fethPlacementMask    = 0x0f
	fethSelectivityShift = 4
	fethSelectivityMask  = 3
)

// Append appends the header. The reserved bits are 0.
func (h *FETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(h.Placement&fethPlacementMask)|
		uint32(h.Selectivity&fethSelectivityMask)<<fethSelectivityShift)
}

// ParseFETH parses the header. The reserved bits are ignored.
func ParseFETH(h *FETH, b []byte) error {
	if len(b) < FETHSize {
		return ErrShort
	}
	v := binary.BigEndian.Uint32(b)
	h.Placement = Placement(v & fethPlacementMask)
	h.Selectivity = Selectivity(v >> fethSelectivityShift & fethSelectivityMask)
	return nil
}
