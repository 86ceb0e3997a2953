package wire

import "encoding/binary"

// DETHSize is the length of the datagram extended transport header.
const DETHSize = 8

// QP1QKey is the Q_Key of the general services queue pair (IBTA 10.2.5).
const QP1QKey = 0x80010000

// DETH names the QP that sent a datagram (IBTA 9.3.2).
type DETH struct {
	QKey  uint32
	SrcQP QPN
}

// Append appends the header. The reserved byte is 0.
func (h *DETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.QKey)
	return binary.BigEndian.AppendUint32(b, uint32(h.SrcQP&MaxQPN))
}

// ParseDETH parses the header. The reserved byte is ignored.
func ParseDETH(h *DETH, b []byte) error {
	if len(b) < DETHSize {
		return ErrShort
	}
	h.QKey = binary.BigEndian.Uint32(b)
	h.SrcQP = QPN(uint24(b[5:]))
	return nil
}
