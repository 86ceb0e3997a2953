package tcp

import (
	"encoding/binary"
	"fmt"
)

// Type is byte 0 of every PDU.
type Type uint8

// PDU types (NVMe/TCP 1.0, section 3.6). H2C is host to controller.
const (
	TypeICReq       Type = 0x00
	TypeICResp      Type = 0x01
	TypeH2CTermReq  Type = 0x02
	TypeC2HTermReq  Type = 0x03
	TypeCapsuleCmd  Type = 0x04
	TypeCapsuleResp Type = 0x05
	TypeH2CData     Type = 0x06
	TypeC2HData     Type = 0x07
	TypeR2T         Type = 0x09

	numTypes = 0x0a // one past the highest type
)

// PDUTypes lists the types that exist, in numerical order.
var PDUTypes = [...]Type{TypeICReq, TypeICResp, TypeH2CTermReq, TypeC2HTermReq, TypeCapsuleCmd,
	TypeCapsuleResp, TypeH2CData, TypeC2HData, TypeR2T}

var typeNames = [numTypes]string{"ICReq", "ICResp", "H2CTermReq", "C2HTermReq", "CapsuleCmd",
	"CapsuleResp", "H2CData", "C2HData", "", "R2T"}

// String is the specification's name of the PDU.
func (t Type) String() string {
	if t < numTypes && typeNames[t] != "" {
		return typeNames[t]
	}
	return fmt.Sprintf("PDU type %#02x", uint8(t))
}

// Bits of the FLAGS byte.
const (
	FlagHDGST   = 0x01 // a header digest follows the header
	FlagDDGST   = 0x02 // a data digest follows the data
	FlagLast    = 0x04 // the last data PDU of a command (C2H) or of an R2T (H2C)
	FlagSuccess = 0x08 // C2HData: stands for a successful CapsuleResp, too
)

// Header is the common header, the first 8 bytes of every PDU.
type Header struct {
	Type  Type
	Flags uint8
	HLEN  uint8  // bytes of the header without its digest
	PDO   uint8  // offset of the data from the start of the PDU; 0 without data
	PLEN  uint32 // bytes of the whole PDU, digests and padding included
}

// HeaderSize is the length of the common header, in bytes.
const HeaderSize = 8

// Offsets of the common header's fields, as a terminate request's FEI reports them.
const (
	offType  = 0
	offFlags = 1
	offHLEN  = 2
	offPDO   = 3
	offPLEN  = 4
)

// headerLengths is HLEN by type; 0 where there is no such type.
var headerLengths = [numTypes]uint8{
	TypeICReq: ICSize, TypeICResp: ICSize,
	TypeH2CTermReq: TermReqSize, TypeC2HTermReq: TermReqSize,
	TypeCapsuleCmd: CapsuleCmdSize, TypeCapsuleResp: CapsuleRespSize,
	TypeH2CData: DataSize, TypeC2HData: DataSize, TypeR2T: R2TSize,
}

// ParseHeader reads the common header at the start of b. It checks nothing but the length of b.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, shortError("common header", len(b), HeaderSize)
	}
	return headerAt(b), nil
}

// headerAt is ParseHeader for a b that is known to be long enough.
func headerAt(b []byte) Header {
	_ = b[7]
	return Header{Type(b[offType]), b[offFlags], b[offHLEN], b[offPDO], binary.LittleEndian.Uint32(b[offPLEN:])}
}

// Append appends the 8 bytes of h to b.
func (h Header) Append(b []byte) []byte {
	b = append(b, byte(h.Type), h.Flags, h.HLEN, h.PDO)
	return binary.LittleEndian.AppendUint32(b, h.PLEN)
}

// headerDigestLen is the length of the header digest that the flags announce.
func (h Header) headerDigestLen() int {
	if h.Flags&FlagHDGST != 0 {
		return DigestSize
	}
	return 0
}

// dataDigestLen is the length of the data digest that the flags announce.
func (h Header) dataDigestLen() int {
	if h.Flags&FlagDDGST != 0 {
		return DigestSize
	}
	return 0
}

// hasData says whether data follows the header. What follows a terminate request's header is
// no data: it is not found by PDO and has no digest.
func (h Header) hasData() bool {
	switch h.Type {
	case TypeCapsuleCmd, TypeH2CData, TypeC2HData:
		return int64(h.PLEN) > int64(h.HLEN)+int64(h.headerDigestLen())
	}
	return false
}

// DataLen is the number of data bytes in the PDU, by its header. It is meaningful for a header
// that passed the checks of a connection.
func (h Header) DataLen() int {
	if !h.hasData() {
		return 0
	}
	return int(h.PLEN) - int(h.PDO) - h.dataDigestLen()
}

// addDigest announces a header digest, if on. It comes before addData.
func (h *Header) addDigest(on bool) {
	if on {
		h.Flags |= FlagHDGST
		h.PLEN += DigestSize
	}
}

// addData announces n bytes of data, aligned to align bytes, with a data digest if on.
func (h *Header) addData(n, align int, digest bool) {
	head := int(h.PLEN)
	h.PDO = uint8((head + align - 1) / align * align)
	h.PLEN = uint32(int(h.PDO) + n)
	if digest {
		h.Flags |= FlagDDGST
		h.PLEN += DigestSize
	}
}

// endHeader appends what follows the header in b[start:]: its digest and the padding up to the
// data, as h announces them.
func endHeader(b []byte, start int, h Header) []byte {
	if h.Flags&FlagHDGST != 0 {
		b = appendDigest(b, b[start:])
	}
	for len(b)-start < int(h.PDO) {
		b = append(b, 0)
	}
	return b
}
