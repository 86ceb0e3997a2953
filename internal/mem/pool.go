package mem

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// Pool hands out the memory of an Arena to requests of peers. A request that finds none waits, the
// oldest first, and those of its peer that come later wait behind it, so that small ones don't pass a
// large one for ever; and no peer holds more than its share, so that one that never lets go of what
// it has can't stop the others.
//
// R is what stands for a request.
type Pool[R any] struct {
	arena *Arena
	limit int64
	grant func(r R, b []byte)

	waiting atomic.Int32 // requests in queues, and those about to be
	mu      sync.Mutex
	shares  map[netip.Addr]*Share[R]
	hungry  map[*Share[R]]struct{} // with requests that wait
	arrived uint64                 // requests that had to wait so far
}

// Share is what one peer has of a Pool.
type Share[R any] struct {
	pool  *Pool[R]
	addr  netip.Addr
	users int          // of pool.mu
	held  atomic.Int64 // bytes
	queue []waiter[R]  // of pool.mu
	// queued is the length of queue, for who has no lock: a request that comes later doesn't pass those.
	queued atomic.Int32
}

type waiter[R any] struct {
	r      R
	n      int
	number uint64
}

// NewPool makes a pool of a's memory in which a peer holds limit bytes at most, or one buffer that
// is larger. grant is called, without locks, with the memory of a request that had to wait.
func NewPool[R any](a *Arena, limit int64, grant func(r R, b []byte)) *Pool[R] {
	return &Pool[R]{
		arena: a, limit: limit, grant: grant,
		shares: map[netip.Addr]*Share[R]{}, hungry: map[*Share[R]]struct{}{},
	}
}

// Join returns the share of a peer, which its connections have in common. Leave ends it.
func (p *Pool[R]) Join(peer netip.Addr) *Share[R] {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shares[peer]
	if s == nil {
		s = &Share[R]{pool: p, addr: peer}
		p.shares[peer] = s
	}
	s.users++
	return s
}

// Leave says that a connection of the peer is gone, and with it its requests.
func (s *Share[R]) Leave() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(s.pool.shares, s.addr)
	}
}

// Alloc returns n bytes, or nil where r has to wait for them.
func (s *Share[R]) Alloc(n int, r R) []byte {
	if s.queued.Load() == 0 {
		if b := s.try(n); b != nil {
			return b
		}
	}
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	// Counted before the last try, so that whoever frees memory after it sees r.
	p.waiting.Add(1)
	if len(s.queue) == 0 {
		if b := s.try(n); b != nil {
			p.waiting.Add(-1)
			return b
		}
	}
	p.arrived++
	s.queue = append(s.queue, waiter[R]{r, n, p.arrived})
	s.queued.Add(1)
	p.hungry[s] = struct{}{}
	return nil
}

// fits says whether n more bytes are within the share.
func (s *Share[R]) fits(n int) bool {
	held := s.held.Load()
	return held == 0 || held+int64(n) <= s.pool.limit
}

// try takes memory that is free, within the share.
func (s *Share[R]) try(n int) []byte {
	if !s.fits(n) {
		return nil
	}
	b := s.pool.arena.Alloc(n)
	if b != nil {
		s.held.Add(int64(n))
	}
	return b
}

// Free gives back what Alloc or grant gave, and serves those who wait.
func (s *Share[R]) Free(b []byte) {
	s.held.Add(-int64(len(b)))
	s.pool.arena.Free(b)
	s.pool.Serve()
}

// Serve gives memory to those who wait, as far as it goes. It is called when memory became free by
// other ways than Free.
func (p *Pool[R]) Serve() {
	for p.waiting.Load() > 0 {
		r, b := p.next()
		if b == nil {
			return
		}
		p.grant(r, b)
	}
}

// next takes the oldest request that fits its share, with memory for it.
func (p *Pool[R]) next() (r R, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var oldest *Share[R]
	for s := range p.hungry {
		if s.fits(s.queue[0].n) && (oldest == nil || s.queue[0].number < oldest.queue[0].number) {
			oldest = s
		}
	}
	if oldest == nil {
		return r, nil
	}
	if b = oldest.try(oldest.queue[0].n); b != nil {
		r = oldest.queue[0].r
		oldest.remove(0)
	}
	return r, b
}

// remove takes a request out of the queue. Called with the pool's lock held.
func (s *Share[R]) remove(i int) {
	last := len(s.queue) - 1
	copy(s.queue[i:], s.queue[i+1:])
	s.queue[last] = waiter[R]{}
	s.queue = s.queue[:last]
	s.queued.Add(-1)
	s.pool.waiting.Add(-1)
	if last == 0 {
		delete(s.pool.hungry, s)
	}
}

// Drop takes the waiting requests that match out of the queue, and returns them. Those that waited behind them may be served.
func (s *Share[R]) Drop(match func(R) bool) []R {
	dropped := s.drop(match)
	if len(dropped) > 0 {
		s.pool.Serve()
	}
	return dropped
}

func (s *Share[R]) drop(match func(R) bool) (dropped []R) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	for i := 0; i < len(s.queue); {
		if r := s.queue[i].r; match(r) {
			dropped = append(dropped, r)
			s.remove(i)
		} else {
			i++
		}
	}
	return dropped
}
