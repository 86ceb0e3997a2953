package nvme

import "encoding/binary"

// SGLSize is the size of one SGL descriptor in bytes.
const SGLSize = 16

// SGL is one SGL descriptor as it lies on the wire, little-endian
// (NVMe base, section "Scatter Gather List").
type SGL [SGLSize]byte

// SGLType is byte 15 of a descriptor: type in bits 7:4, subtype in bits 3:0.
type SGLType byte

// The descriptors that Fabrics transports use.
const (
	SGLDataBlockAddress SGLType = 0x00 // data block, address (not used by any Fabrics transport)
	SGLInCapsule        SGLType = 0x01 // data block, offset: data in the capsule
	SGLKeyed            SGLType = 0x40 // keyed data block: address, 24-bit length, key
	SGLKeyedInvalidate  SGLType = 0x4f // the same, with remote invalidation of the key
	SGLTransport        SGLType = 0x5a // transport data block: R2T/H2CData or C2HData on TCP
)

// MaxKeyedLength is the longest transfer that one keyed descriptor can describe.
const MaxKeyedLength = 1<<24 - 1

// Type is the SGL Identifier: type in bits 7:4, subtype in 3:0.
func (s *SGL) Type() SGLType { return SGLType(s[15]) }

// Address is an address or, for a data block in the capsule (SGLInCapsule), an offset in bytes.
func (s *SGL) Address() uint64 { return binary.LittleEndian.Uint64(s[0:]) }

// Length is the 32-bit length of a data block or transport descriptor, in bytes.
func (s *SGL) Length() uint32 { return binary.LittleEndian.Uint32(s[8:]) }

// KeyedLength is the 24-bit length of a keyed descriptor, in bytes.
func (s *SGL) KeyedLength() uint32 {
	return uint32(s[8]) | uint32(s[9])<<8 | uint32(s[10])<<16
}

// Key is the R_Key of a keyed descriptor (bytes 11 to 14, little-endian).
func (s *SGL) Key() uint32 { return binary.LittleEndian.Uint32(s[11:]) }

// SetKeyed makes s a keyed descriptor. length must not exceed MaxKeyedLength.
func (s *SGL) SetKeyed(t SGLType, addr uint64, length, key uint32) {
	binary.LittleEndian.PutUint64(s[0:], addr)
	s[8], s[9], s[10] = byte(length), byte(length>>8), byte(length>>16)
	binary.LittleEndian.PutUint32(s[11:], key)
	s[15] = byte(t)
}

// SetBlock makes s a data block (SGLInCapsule) or transport (SGLTransport) descriptor.
func (s *SGL) SetBlock(t SGLType, addr uint64, length uint32) {
	binary.LittleEndian.PutUint64(s[0:], addr)
	binary.LittleEndian.PutUint32(s[8:], length)
	s[12], s[13], s[14] = 0, 0, 0
	s[15] = byte(t)
}
