package wire

import "sync/atomic"

// shift tells which change of the four bytes of Identification, flags and fragment offset of an IPv4 header would by
// itself explain the wrong ICRC of a packet of one length. The contribution of these bytes to the ICRC is linear over
// GF(2), and both are 32 bits, so there is exactly one: the XOR of an entry for each nibble of the syndrome, with the
// Identification in its upper half.
type shift [8][16]uint32

// maxSolved is the longest packet whose Identification is solved for. In longer ones single-bit errors would pass; only
// a sender like ours makes those, and not in trains.
const maxSolved = MaxPacket - LongData + JumboData

// shifts holds the maps by length/4 of the UDP payload, made at first use: 512 bytes for each length that occurs, less
// than 1.1 MiB if every length does.
var shifts [maxSolved/4 + 1]atomic.Pointer[shift]

// shiftOf returns the map for a UDP payload of n bytes; n is at most maxSolved and divisible
// by four.
func shiftOf(n int) *shift {
	if s := shifts[n/4].Load(); s != nil {
		return s
	}
	s := makeShift(n)
	shifts[n/4].Store(s) // if another one was made meanwhile, it is equal
	return s
}

// solve returns the change of the Identification that by itself explains the syndrome, if there is one.
func (s *shift) solve(syndrome uint32) (id uint16, ok bool) {
	v := s[0][syndrome&15] ^ s[1][syndrome>>4&15] ^
		s[2][syndrome>>8&15] ^ s[3][syndrome>>12&15] ^
		s[4][syndrome>>16&15] ^ s[5][syndrome>>20&15] ^
		s[6][syndrome>>24&15] ^ s[7][syndrome>>28]
	return uint16(v >> 16), uint16(v) == 0
}

func makeShift(n int) *shift {
	// column[i] is the contribution of bit i of the four bytes taken big-endian.
	var column [32]uint32
	for i := range column {
		byteFromEnd := i / 8
		after := prefixV4 - offV4ID - 4 + byteFromEnd + n - ICRCSize
		column[i] = crcZeros(crcTables[0][1<<(i%8)], after)
	}
	row := invert(column)
	s := new(shift)
	for k := range s {
		s[k] = nibbleTable([4]uint32(row[4*k:]))
	}
	return s
}

// nibbleTable[v] is the XOR of the columns selected by the bits of v.
func nibbleTable(column [4]uint32) (t [16]uint32) {
	for v := range t {
		for i, c := range column {
			if v>>i&1 != 0 {
				t[v] ^= c
			}
		}
	}
	return t
}

// invert returns the inverse of a regular matrix over GF(2), both as columns: m[i] is the
// image of bit i.
func invert(m [32]uint32) (inverse [32]uint32) {
	var origin [32]uint32 // m[i] is always the image of origin[i]
	for i := range origin {
		origin[i] = 1 << i
	}
	for bit := range m {
		pivot := bit
		for m[pivot]>>bit&1 == 0 {
			pivot++
		}
		m[bit], m[pivot] = m[pivot], m[bit]
		origin[bit], origin[pivot] = origin[pivot], origin[bit]
		for i := range m {
			if i != bit && m[i]>>bit&1 != 0 {
				m[i] ^= m[bit]
				origin[i] ^= origin[bit]
			}
		}
	}
	return origin
}
