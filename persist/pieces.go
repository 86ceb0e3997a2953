package persist

import (
	"sync"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// pieces are the blocks of a view or a loan, in order. Usually they are one run, which fits in the token; otherwise
// they are kept in a slot.
type pieces struct {
	one  [1]blocks
	slot *slot
}

// slot is memory for many runs.
type slot struct {
	index int
	n     int
	list  [blockdev.MaxSegments]blocks
	next  *slot // in the list of free ones
}

// slots holds as many slots as were ever needed at once.
type slots struct {
	mu   sync.Mutex
	all  []*slot
	free *slot
}

func (s *slots) get() *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.free
	if x == nil {
		x = &slot{index: len(s.all)}
		s.all = append(s.all, x)
		return x
	}
	s.free = x.next
	return x
}

func (s *slots) put(x *slot) {
	s.mu.Lock()
	x.next, s.free = s.free, x
	s.mu.Unlock()
}

// add appends blocks; it returns false if there are too many runs.
func (s *slots) add(p *pieces, b blocks) bool {
	all := p.all()
	if len(all) == 0 {
		p.one[0] = b
		return true
	}
	if last := &all[len(all)-1]; b.follows(*last) {
		last.n += b.n
		return true
	}
	if p.slot == nil {
		p.move(s)
	}
	if p.slot.n == len(p.slot.list) {
		return false
	}
	p.slot.list[p.slot.n] = b
	p.slot.n++
	return true
}

// move puts a single run into a slot.
func (p *pieces) move(s *slots) {
	p.slot = s.get()
	p.slot.list[0], p.slot.n = p.one[0], 1
}

func (p *pieces) all() []blocks {
	switch {
	case p.slot != nil:
		return p.slot.list[:p.slot.n]
	case p.one[0].n > 0:
		return p.one[:]
	}
	return nil
}

// A token is 1<<63, the length of the only run and its first block's number in the file; or a slot's index plus one.
const (
	tokenOne   = 1 << 63
	tokenCount = 1<<15 - 1
)

// token returns a token for pieces.
func (s *slots) token(p *pieces) uint64 {
	if p.slot == nil && p.one[0].n > tokenCount {
		p.move(s)
	}
	if p.slot != nil {
		return uint64(p.slot.index) + 1
	}
	return tokenOne | uint64(p.one[0].n)<<entryBits | p.one[0].number(0)
}

// pieces returns what a token names. The slot, if there is one, is the caller's to put back.
func (s *slots) pieces(t uint64, xs []*extent) (p pieces) {
	if t&tokenOne == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return pieces{slot: s.all[t-1]}
	}
	p.one[0].n = int(t >> entryBits & tokenCount)
	p.one[0].x, p.one[0].first = extentOf(xs, t&entryMask)
	return p
}

// drop releases pieces.
func (s *slots) drop(p *pieces) {
	if p.slot != nil {
		s.put(p.slot)
	}
}
