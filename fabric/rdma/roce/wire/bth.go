package wire

import "encoding/binary"

// BTHSize is the length of the base transport header.
const BTHSize = 12

// DefaultPKey is the P_Key of full membership in the default partition.
const DefaultPKey = 0xffff

// Bits of the BTH bytes that hold flags.
const (
	bthSolicited = 0x80 // byte 1
	bthMigReq    = 0x40
	bthPadShift  = 4
	bthPadMask   = 3
	bthTVerMask  = 0x0f
	bthFECN      = 0x80 // byte 4
	bthBECN      = 0x40
	bthAckReq    = 0x80 // byte 8
)

// BTH is the base transport header of every packet (IBTA 9.2).
type BTH struct {
	Opcode    Opcode
	Solicited bool  // SE: asks for an event at the receiver's consumer
	MigReq    bool  // migration state; true is the usual "migrated" of hardware
	PadCnt    uint8 // 0..3 zero bytes after the payload
	FECN      bool  // this packet met congestion on its way
	BECN      bool  // packets from the receiver of this one met congestion
	AckReq    bool  // asks the responder to acknowledge this packet
	PKey      uint16
	DestQP    QPN
	PSN       PSN
}

// Append appends the header. TVer and the reserved bits are 0.
func (h *BTH) Append(b []byte) []byte {
	f1 := h.PadCnt & bthPadMask << bthPadShift
	if h.Solicited {
		f1 |= bthSolicited
	}
	if h.MigReq {
		f1 |= bthMigReq
	}
	var f4, f8 byte
	if h.FECN {
		f4 |= bthFECN
	}
	if h.BECN {
		f4 |= bthBECN
	}
	if h.AckReq {
		f8 |= bthAckReq
	}
	return append(b,
		byte(h.Opcode), f1, byte(h.PKey>>8), byte(h.PKey),
		f4, byte(h.DestQP>>16), byte(h.DestQP>>8), byte(h.DestQP),
		f8, byte(h.PSN>>16), byte(h.PSN>>8), byte(h.PSN))
}

// ParseBTH parses the header. The reserved bits are ignored; a TVer other than 0 is ErrTVer.
func ParseBTH(h *BTH, b []byte) error {
	if len(b) < BTHSize {
		return ErrShort
	}
	h.Opcode = Opcode(b[0])
	f1, f4 := b[1], b[4]
	h.Solicited = f1&bthSolicited != 0
	h.MigReq = f1&bthMigReq != 0
	h.PadCnt = f1 >> bthPadShift & bthPadMask
	h.PKey = binary.BigEndian.Uint16(b[2:])
	h.FECN = f4&bthFECN != 0
	h.BECN = f4&bthBECN != 0
	h.DestQP = QPN(uint24(b[5:]))
	h.AckReq = b[8]&bthAckReq != 0
	h.PSN = PSN(uint24(b[9:]))
	if f1&bthTVerMask != 0 {
		return ErrTVer
	}
	return nil
}

// DestQPOf returns the destination queue pair of a packet, 0 if it is too short for a BTH.
func DestQPOf(b []byte) QPN {
	if len(b) < BTHSize {
		return 0
	}
	return QPN(uint24(b[5:]))
}

// PKeyMatch reports whether packets may pass between two P_Keys: the same partition, and at least one side a full
// member (IBTA 10.9.3).
func PKeyMatch(a, b uint16) bool {
	const membership = 0x8000
	return (a^b)&^membership == 0 && (a|b)&membership != 0
}
