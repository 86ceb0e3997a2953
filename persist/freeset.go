package persist

// freeSet is the set of free blocks of an extent. It finds long runs of them quickly even if most are isolated, as
// after small writes that were replaced by others.
type freeSet struct {
	blocks *bitset
	whole  *bitset // stretches that are entirely free
}

const (
	// stretch is how many blocks are looked at as one, aligned; a divisor of 64.
	stretch = 32
	// longRun is the length from which a run is looked for among stretches first. Isolated blocks are then left to
	// small writes, and become runs again as their neighbours are freed.
	longRun = stretch / 2
	// tries is how many places are tried to find a run that is long enough.
	tries = 8
)

// newFreeSet returns the set of n blocks, all free.
func newFreeSet(n int) *freeSet {
	s := &freeSet{newBitset(n), newBitset(n/stretch + 1)}
	s.blocks.fill(n)
	s.whole.fill(n / stretch)
	return s
}

// take takes up to most adjacent blocks; n is 0 if there are none. Low blocks are reused first, so that a sparse file
// stays small.
func (s *freeSet) take(most int) (first, n int) {
	if most >= longRun {
		first, n = s.search(s.whole, stretch, most)
	}
	if n == 0 {
		first, n = s.search(s.blocks, 1, most)
	}
	for i := first; i < first+n; i++ {
		s.remove(i)
	}
	return first, n
}

// likely returns the block that is likely to be taken after i; -1 if there is none.
func (s *freeSet) likely(i int) int { return s.blocks.next(i + 1) }

// search looks at a few places, each the beginning of a member of set, which stands for the given number of blocks, and
// returns the longest run.
func (s *freeSet) search(set *bitset, blocks, most int) (first, n int) {
	at := set.next(0)
	for range tries {
		if at < 0 || n == most {
			break
		}
		run := s.blocks.run(at*blocks, most)
		if run > n {
			first, n = at*blocks, run
		}
		at = set.next(at + (run+blocks-1)/blocks)
	}
	return first, n
}

// add makes block i free.
func (s *freeSet) add(i int) {
	s.blocks.add(i)
	const all = 1<<stretch - 1
	if s.blocks.levels[0][i>>6]>>(i&63&^(stretch-1))&all == all {
		s.whole.add(i / stretch)
	}
}

// remove removes block i; it returns false if the block wasn't free.
func (s *freeSet) remove(i int) bool {
	if !s.blocks.remove(i) {
		return false
	}
	s.whole.remove(i / stretch)
	return true
}
