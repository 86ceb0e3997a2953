package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// The CRC state here is raw: it starts at all ones, and the caller inverts it at the end to get a checksum. Raw states
// are linear: the state after a message is the XOR of the state after a message of zeros and of the contribution of
// each one-bit. The ICRC code relies on that.

// crcTables[k][v] is the contribution of byte v to the state when k more bytes follow it.
var crcTables = makeCRCTables()

func makeCRCTables() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for k := 1; k < len(t); k++ {
		for v := range t[k] {
			t[k][v] = crcZeros(t[k-1][v], 1)
		}
	}
	return t
}

// crcZeros returns the state n zero bytes after state.
func crcZeros(state uint32, n int) uint32 {
	for ; n > 0; n-- {
		state = crc32.IEEETable[byte(state)] ^ state>>8
	}
	return state
}

// crcLong is the length from which the vector instructions of hash/crc32 pay off.
const crcLong = 64

// crcPortable is crcUpdate for any processor.
func crcPortable(state uint32, p []byte) uint32 {
	if len(p) >= crcLong {
		return ^crc32.Update(^state, crc32.IEEETable, p)
	}
	return crcShort(state, p)
}

// crcPacketPortable is crcPacket for any processor.
func crcPacketPortable(state uint32, p []byte) uint32 {
	state = crcWord(state, binary.LittleEndian.Uint64(p)|maskByte4)
	state = crcHalfWord(state, binary.LittleEndian.Uint32(p[8:]))
	return crcPortable(state, p[BTHSize:])
}

// maskByte4 sets byte 4 of eight bytes to ones: a BTH's FECN, BECN and reserved bits, which the ICRC doesn't cover.
const maskByte4 = 0xff << 32

// crcShort is crcPortable using tables, for short data such as headers.
func crcShort(state uint32, p []byte) uint32 {
	for len(p) >= 8 {
		state = crcWord(state, binary.LittleEndian.Uint64(p))
		p = p[8:]
	}
	if len(p) >= 4 {
		state = crcHalfWord(state, binary.LittleEndian.Uint32(p))
		p = p[4:]
	}
	for _, b := range p {
		state = crcTables[0][byte(state)^b] ^ state>>8
	}
	return state
}

// crcWord returns the state after the eight bytes of w, lowest first.
func crcWord(state uint32, w uint64) uint32 {
	w ^= uint64(state)
	return crcTables[7][byte(w)] ^ crcTables[6][byte(w>>8)] ^
		crcTables[5][byte(w>>16)] ^ crcTables[4][byte(w>>24)] ^
		crcTables[3][byte(w>>32)] ^ crcTables[2][byte(w>>40)] ^
		crcTables[1][byte(w>>48)] ^ crcTables[0][byte(w>>56)]
}

// crcHalfWord returns the state after the four bytes of w, lowest first.
func crcHalfWord(state, w uint32) uint32 {
	w ^= state
	return crcTables[3][byte(w)] ^ crcTables[2][byte(w>>8)] ^
		crcTables[1][byte(w>>16)] ^ crcTables[0][byte(w>>24)]
}
