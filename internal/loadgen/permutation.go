package loadgen

import "math/bits"

// permutation puts the numbers 0 to n-1 in a random order without a table: every step is a bijection on the numbers
// with as many bits as n-1, and a result that isn't below n is put through again until it is. It yields random
// offsets without repetition, and scatters the popular blocks of a skewed distribution.
type permutation struct {
	n     uint64
	mask  uint64 // as many bits as n-1 takes
	shift int
	key   uint64
}

func newPermutation(n int64, key uint64) permutation {
	width := max(bits.Len64(uint64(n-1)), 2)
	return permutation{n: uint64(n), mask: 1<<width - 1, shift: (width + 1) / 2, key: key}
}

// at returns the number in place i.
func (p *permutation) at(i uint64) uint64 {
	for {
		// Addition, xor with a right shift, and multiplication by an odd number are each invertible, so no two
		// numbers collide.
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
