package wire

import "encoding/binary"

// RETHSize is the length of the RDMA extended transport header.
const RETHSize = 16

// MaxMessage is the longest message in bytes (IBTA 9.7.8).
const MaxMessage = 1 << 31

// RETH names the remote memory of an RDMA WRITE or READ (IBTA 9.3.3).
type RETH struct {
	VA     uint64 // virtual address
	RKey   uint32
	Length uint32 // DMA length of the whole message in bytes
}

// Append appends the header.
func (h *RETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	return binary.BigEndian.AppendUint32(b, h.Length)
}

// ParseRETH parses the header.
func ParseRETH(h *RETH, b []byte) error {
	if len(b) < RETHSize {
		return ErrShort
	}
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.Length = binary.BigEndian.Uint32(b[12:])
	return nil
}
