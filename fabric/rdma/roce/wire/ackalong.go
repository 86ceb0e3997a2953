package wire

import "encoding/binary"

// Requests that take an acknowledgement along, between two software RNICs that have agreed on it
// (package roce). The opcodes are those of the requests with the upper three bits set, which the
// specification leaves to manufacturers (IBTA table 38), and behind the other headers is AckPSN.
const (
	WriteSendAck        = acknowledges | WriteSend
	WriteSendWithInvAck = acknowledges | WriteSendWithInv
	SendOnlyAck         = acknowledges | RCSendOnly
	ReadRequestAck      = acknowledges | RCReadRequest
	SendOnlyWithInvAck  = acknowledges | RCSendOnlyWithInv

	acknowledges Opcode = 0xe0
)

// WithAck is the opcode of the same request with an acknowledgement, or o where there is none.
func (o Opcode) WithAck() Opcode {
	if a := o | acknowledges; opTable[a].headers == opTable[o].headers|HasAckPSN {
		return a
	}
	return o
}

// AckPSNSize is the length of an AckPSN.
const AckPSNSize = 4

// AckPSN is the last PSN that the sender of a request has executed of those that the receiver has sent
// it, as that of an ACKNOWLEDGE is.
type AckPSN PSN

// Append writes the header: a reserved byte, and the PSN.
func (h AckPSN) Append(b []byte) []byte { return binary.BigEndian.AppendUint32(b, uint32(h)) }

// ParseAckPSN reads the header.
func ParseAckPSN(h *AckPSN, b []byte) error {
	if len(b) < AckPSNSize {
		return ErrShort
	}
	*h = AckPSN(uint24(b[1:]))
	return nil
}
