package loadgen

import "math/bits"

// permutation puts the numbers 0 to n-1 into a random order without a table: every step is a
// bijection on the numbers of so many bits, and what falls outside of n is taken through
// again until it is inside. It gives random offsets each of which comes once, and scatters the
// popular blocks of a skewed distribution.
type permutation struct {
	n     uint64
	mask  uint64 // the numbers of the bits that n-1 takes
	shift int
	key   uint64
}

func newPermutation(n int64, key uint64) permutation {
	width := max(bits.Len64(uint64(n-1)), 2)
	return permutation{n: uint64(n), mask: 1<<width - 1, shift: (width + 1) / 2, key: key}
}

// at is the number in place i.
func (p *permutation) at(i uint64) uint64 {
	for {
		// Adding, xoring with a right shift, and multiplying by an odd number can each be
		// undone, so no two numbers become one.
		i = (i + p.key) & p.mask
		i ^= i >> p.shift
		i = i * 0xd6e8feb86659fd93 & p.mask
		i ^= i >> p.shift
		i = (i*0xa0761d6478bd642f + p.key>>32) & p.mask
		i ^= i >> p.shift
		if i < p.n {
			return i
		}
	}
}
