package pdu

import "encoding/binary"

// Bits of the FLAGS byte.
const (
	FlagHDGST   = 0x01 // a header digest follows the header
	FlagDDGST   = 0x02 // a data digest follows the data
	FlagLast    = 0x04 // the last data PDU of a command (C2H) or of an R2T (H2C)
	FlagSuccess = 0x08 // C2HData: also stands for a successful CapsuleResp
)

// Header is the common header, the first 8 bytes of every PDU. Format makes them.
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
	OffFlags = 1
	offHLEN  = 2
	offPDO   = 3
	OffPLEN  = 4
)

// headerLengths is HLEN by type; 0 if there is no such type.
var headerLengths = [NumTypes]uint8{
	TypeICReq: ICSize, TypeICResp: ICSize,
	TypeH2CTermReq: TermReqSize, TypeC2HTermReq: TermReqSize,
	TypeCapsuleCmd: CapsuleCmdSize, TypeCapsuleResp: CapsuleRespSize,
	TypeH2CData: DataSize, TypeC2HData: DataSize, TypeR2T: R2TSize,
}

// HeaderAt reads the common header at the start of b, which must have at least HeaderSize bytes. It
// checks nothing; Rules.Check does.
func HeaderAt(b []byte) Header {
	_ = b[HeaderSize-1]
	return Header{Type(b[offType]), b[OffFlags], b[offHLEN], b[offPDO], binary.LittleEndian.Uint32(b[OffPLEN:])}
}

// Append appends the 8 bytes of h to b.
func (h Header) Append(b []byte) []byte {
	b = append(b, byte(h.Type), h.Flags, h.HLEN, h.PDO)
	return binary.LittleEndian.AppendUint32(b, h.PLEN)
}

// Head returns how many bytes must be there before the PDU can be parsed: without the header digest,
// as the Parse functions take them, and with it. Of a terminate request, that is the whole PDU. h must
// have passed Rules.Check.
func (h Header) Head() (parsed, whole int) {
	if h.Type.isTermReq() {
		return int(h.PLEN), int(h.PLEN)
	}
	return int(h.HLEN), int(h.HLEN) + h.headerDigestLen()
}

// CheckDigest checks the header digest, if h announces one; head is the PDU's whole head.
func (h Header) CheckDigest(head []byte) *FieldError {
	if h.Flags&FlagHDGST == 0 {
		return nil
	}
	if got := binary.LittleEndian.Uint32(head[h.HLEN:]); got != Digest(head[:h.HLEN]) {
		return &FieldError{FESHeaderDigest, got, "HDGST"}
	}
	return nil
}

// DataLen returns the number of data bytes in the PDU. h must have passed Rules.Check.
func (h Header) DataLen() int {
	if !h.hasData() {
		return 0
	}
	return int(h.PLEN) - int(h.PDO) - h.dataDigestLen()
}

// hasData reports whether data follows the header. What follows a terminate request's header doesn't
// count as data: PDO doesn't point to it, and it has no digest.
func (h Header) hasData() bool {
	switch h.Type {
	case TypeCapsuleCmd, TypeH2CData, TypeC2HData:
		return int64(h.PLEN) > int64(h.HLEN)+int64(h.headerDigestLen())
	}
	return false
}

// headerDigestLen returns the length of the header digest that the flags announce.
func (h Header) headerDigestLen() int {
	if h.Flags&FlagHDGST != 0 {
		return DigestSize
	}
	return 0
}

// dataDigestLen returns the length of the data digest that the flags announce.
func (h Header) dataDigestLen() int {
	if h.Flags&FlagDDGST != 0 {
		return DigestSize
	}
	return 0
}

// end appends what follows the header b[start:]: its digest and the padding up to the data, as h
// announces them.
func (h Header) end(b []byte, start int) []byte {
	if h.Flags&FlagHDGST != 0 {
		b = AppendDigest(b, Digest(b[start:]))
	}
	for len(b)-start < int(h.PDO) {
		b = append(b, 0)
	}
	return b
}
