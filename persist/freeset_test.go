package persist

import (
	"math/rand/v2"
	"testing"
)

// TestFreeSet takes and gives at random: what is taken was free and is adjacent, and as long as a stretch is free a
// long run can be had.
func TestFreeSet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, size := range []int{1, 31, 32, 33, 64, 2048, 2049, 64*stretch + 5} {
		s := newFreeSet(size)
		held := map[int]bool{}
		for range 3000 {
			if rnd.IntN(2) == 0 {
				most := 1 + rnd.IntN(3*stretch)
				whole := s.whole.next(0) >= 0
				first, n := s.take(most)
				if n > most || n == 0 && len(held) < size || whole && most >= longRun && n < min(most, stretch) {
					t.Fatalf("%d of %d blocks, where a stretch is free: %v", n, most, whole)
				}
				for i := first; i < first+n; i++ {
					if held[i] || i >= size {
						t.Fatalf("block %d of %d wasn't free", i, size)
					}
					held[i] = true
				}
				continue
			}
			for i := range held { // in no particular order
				delete(held, i)
				s.add(i)
				if rnd.IntN(20) == 0 {
					break
				}
			}
		}
		for k := range size / stretch {
			if (s.blocks.run(k*stretch, stretch) == stretch) != s.whole.has(k) {
				t.Errorf("%d blocks: stretch %d isn't what its blocks say", size, k)
			}
		}
	}
}

// TestLowFirst: small writes don't use the end of a sparse file, and neither do large ones if there is room for them
// before it.
func TestLowFirst(t *testing.T) {
	s := newFreeSet(10 * stretch)
	for i := range 3 * stretch {
		s.remove(i)
	}
	s.add(5)
	if first, n := s.take(4); first != 3*stretch || n != 4 { // longer than the one in front
		t.Errorf("%d from %d on", n, first)
	}
	if first, n := s.take(1); first != 5 || n != 1 {
		t.Errorf("%d from %d on", n, first)
	}
	if first, n := s.take(stretch); first != 4*stretch || n != stretch {
		t.Errorf("%d from %d on", n, first)
	}
}
