package persist

import "math/bits"

// bitset is a set of numbers from 0 up to a bound that finds its smallest member quickly: each bit of a level above the
// lowest says whether the corresponding word of the level below has any bits set.
type bitset struct {
	levels [][]uint64 // the members first; the last level is one word
}

// newBitset returns an empty set of numbers below n.
func newBitset(n int) *bitset {
	s := &bitset{}
	for {
		n = (n + 63) / 64
		s.levels = append(s.levels, make([]uint64, n))
		if n <= 1 {
			return s
		}
	}
}

// fill adds all numbers below n to an empty set.
func (s *bitset) fill(n int) {
	for _, l := range s.levels {
		for i := range n >> 6 {
			l[i] = ^uint64(0)
		}
		if n&63 != 0 {
			l[n>>6] = 1<<(n&63) - 1
		}
		n = (n + 63) >> 6
	}
}

// empty removes all members.
func (s *bitset) empty() {
	for i := s.next(0); i >= 0; i = s.next(i + 1) {
		s.remove(i)
	}
}

func (s *bitset) has(i int) bool { return s.levels[0][i>>6]&(1<<(i&63)) != 0 }

// add makes i a member; it returns false if i already was one.
func (s *bitset) add(i int) bool {
	if s.has(i) {
		return false
	}
	for _, l := range s.levels {
		w := &l[i>>6]
		had := *w != 0
		*w |= 1 << (i & 63)
		if had {
			break
		}
		i >>= 6
	}
	return true
}

// remove removes i; it returns false if i wasn't a member.
func (s *bitset) remove(i int) bool {
	if !s.has(i) {
		return false
	}
	for _, l := range s.levels {
		w := &l[i>>6]
		*w &^= 1 << (i & 63)
		if *w != 0 {
			break
		}
		i >>= 6
	}
	return true
}

// next returns the smallest member from i on; -1 if there is none.
func (s *bitset) next(i int) int {
	for k := 0; k < len(s.levels); k++ {
		if i>>6 >= len(s.levels[k]) {
			return -1
		}
		if w := s.levels[k][i>>6] >> (i & 63); w != 0 {
			i += bits.TrailingZeros64(w)
			for k--; k >= 0; k-- {
				i = i<<6 | bits.TrailingZeros64(s.levels[k][i])
			}
			return i
		}
		i = i>>6 + 1
	}
	return -1
}

// run returns how many consecutive members there are from i on, up to most.
func (s *bitset) run(i, most int) (n int) {
	for n < most && (i+n)>>6 < len(s.levels[0]) {
		free := 64 - (i+n)&63
		ones := bits.TrailingZeros64(^(s.levels[0][(i+n)>>6] >> ((i + n) & 63)))
		n += min(ones, free)
		if ones < free {
			break
		}
	}
	return min(n, most)
}
