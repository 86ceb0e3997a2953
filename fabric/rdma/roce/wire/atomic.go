package wire

import "encoding/binary"

// Lengths of the headers of atomic operations.
const (
	AtomicETHSize    = 28
	AtomicAckETHSize = 8
)

// AtomicETH holds the operands of an atomic (IBTA 9.3.4).
type AtomicETH struct {
	VA        uint64 // virtual address, a multiple of 8
	RKey      uint32
	SwapAdd   uint64 // CmpSwap: the new value. FetchAdd: the addend
	CompareDt uint64 // CmpSwap: the value expected
}

// Append appends the header.
func (h *AtomicETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	b = binary.BigEndian.AppendUint64(b, h.SwapAdd)
	return binary.BigEndian.AppendUint64(b, h.CompareDt)
}

// ParseAtomicETH parses the header.
func ParseAtomicETH(h *AtomicETH, b []byte) error {
	if len(b) < AtomicETHSize {
		return ErrShort
	}
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.SwapAdd = binary.BigEndian.Uint64(b[12:])
	h.CompareDt = binary.BigEndian.Uint64(b[20:])
	return nil
}

// AtomicAckETH is the result of an atomic: the value before the operation (IBTA 9.3.5.3).
type AtomicAckETH struct {
	OrigRemDt uint64
}

// Append appends the header.
func (h *AtomicAckETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, h.OrigRemDt)
}

// ParseAtomicAckETH parses the header.
func ParseAtomicAckETH(h *AtomicAckETH, b []byte) error {
	if len(b) < AtomicAckETHSize {
		return ErrShort
	}
	h.OrigRemDt = binary.BigEndian.Uint64(b)
	return nil
}
