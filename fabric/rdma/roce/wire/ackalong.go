package wire

import "encoding/binary"

// Requests that carry an acknowledgement, between two software RNICs that have agreed on it (package roce). The opcodes
// are those of the requests with the upper three bits set, which the specification leaves to manufacturers (IBTA table
// 38), and AckPSN follows the other headers.
const (
	WriteSendAck        = acknowledges | WriteSend
	WriteSendWithInvAck = acknowledges | WriteSendWithInv
	SendOnlyAck         = acknowledges | RCSendOnly
	ReadRequestAck      = acknowledges | RCReadRequest
	SendOnlyWithInvAck  = acknowledges | RCSendOnlyWithInv

	acknowledges Opcode = 0xe0
)

// WithAck returns the opcode of the same request with an acknowledgement, or o if there is none.
func (o Opcode) WithAck() Opcode {
	if a := o | acknowledges; opTable[a].headers == opTable[o].headers|HasAckPSN {
		return a
	}
	return o
}

// AckPSNSize is the length of an AckPSN.
const AckPSNSize = 4

// AckPSN is the last PSN from the receiver that the sender of the request has executed, like the PSN of an ACKNOWLEDGE.
type AckPSN PSN

// Append appends the header: a reserved byte, and the PSN.
func (h AckPSN) Append(b []byte) []byte { return binary.BigEndian.AppendUint32(b, uint32(h)) }

// ParseAckPSN parses the header.
func ParseAckPSN(h *AckPSN, b []byte) error {
	if len(b) < AckPSNSize {
		return ErrShort
	}
	*h = AckPSN(uint24(b[1:]))
	return nil
}
