package mem

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/pqueue"
)

// Pool hands out the memory of an Arena to requests of peers. A request that finds none waits; requests are served
// oldest first, and later ones of the same peer wait behind it, so that small ones don't overtake a large one for ever.
// No peer holds more than its share, so one that never frees memory can't stop the others.
//
// If the Arena has too little for a request, those of other peers wait behind it as well, but only for patience: the
// peers that hold the memory may never free it. It is tried again from time to time, as it may not be peers that hold
// the memory, but something else in the system.
//
// R represents a request.
type Pool[R any] struct {
	arena *Arena
	limit int64
	grant func(r R, b []byte)

	waiting atomic.Int32 // requests in queues, and those about to be queued
	mu      sync.Mutex
	shares  map[netip.Addr]*Share[R]
	hungry  map[*Share[R]]struct{}  // shares with waiting requests
	served  pqueue.Queue[*Share[R]] // those of them whose oldest request was within the share when last checked, by its age
	arrived uint64                  // how many requests have had to wait so far

	saving  atomic.Bool // free memory is kept for the oldest waiting request that is within its share
	until   time.Time   // the end of saving; guarded by mu, like the following
	again   time.Time   // no saving before this time
	overdue *time.Timer // ends saving, and tries again for what found no memory
	due     time.Time   // overdue fires then, unless that is past
}

const (
	// patience is how long memory is saved for one request: longer than most commands take, and much shorter than hosts
	// wait for them.
	patience = time.Second
	// pause is how long no memory is saved after saving has failed.
	pause = 10 * patience
)

// Share is the part of a Pool that one peer uses.
type Share[R any] struct {
	pool  *Pool[R]
	addr  netip.Addr
	users int          // guarded by pool.mu
	place int          // in pool.served, guarded by pool.mu; -1 while it isn't there
	held  atomic.Int64 // bytes
	queue []waiter[R]  // guarded by pool.mu
	// queued is the length of queue, to be read without the lock: a later request doesn't overtake those.
	queued atomic.Int32
}

type waiter[R any] struct {
	r      R
	n      int
	number uint64
}

// NewPool returns a pool of a's memory in which a peer holds at most limit bytes, or one buffer that is larger. grant is
// called, without locks held, with the memory for a request that had to wait.
func NewPool[R any](a *Arena, limit int64, grant func(r R, b []byte)) *Pool[R] {
	p := &Pool[R]{
		arena: a, limit: limit, grant: grant,
		shares: map[netip.Addr]*Share[R]{}, hungry: map[*Share[R]]struct{}{},
		served: pqueue.New(
			func(a, b *Share[R]) bool { return a.queue[0].number < b.queue[0].number },
			func(s *Share[R], place int) { s.place = place },
		),
	}
	p.overdue = time.AfterFunc(patience, p.Serve)
	p.overdue.Stop()
	return p
}

// Join returns the share of a peer, which all of its connections use. Leave undoes it.
func (p *Pool[R]) Join(peer netip.Addr) *Share[R] {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shares[peer]
	if s == nil {
		s = &Share[R]{pool: p, addr: peer, place: -1}
		p.shares[peer] = s
	}
	s.users++
	return s
}

// Leave says that a connection of the peer is gone, and its requests with it.
func (s *Share[R]) Leave() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(s.pool.shares, s.addr)
	}
}

// Alloc returns n bytes, or nil if r has to wait for them.
func (s *Share[R]) Alloc(n int, r R) []byte {
	p := s.pool
	if s.queued.Load() == 0 && !p.saving.Load() && s.fits(n) {
		b, late := s.try(n)
		if b != nil {
			return b
		}
		if late {
			defer p.Serve() // others may wait because they didn't find what was given back
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Counted before the last attempt, so that a Free after it sees r.
	p.waiting.Add(1)
	if len(s.queue) == 0 && !p.saving.Load() && s.fits(n) {
		b, late := s.try(n)
		if b != nil {
			p.waiting.Add(-1)
			return b
		}
		if !late && !p.save() {
			p.tryLater()
		}
	}
	p.arrived++
	s.queue = append(s.queue, waiter[R]{r, n, p.arrived})
	s.queued.Add(1)
	p.hungry[s] = struct{}{}
	s.lineUp()
	return nil
}

// lineUp updates the position of a share in pool.served to match its queue and what it holds. It must be called after
// memory is returned to a share, so that the share isn't forgotten. Called with the pool's lock held.
func (s *Share[R]) lineUp() {
	served := &s.pool.served
	switch wants := len(s.queue) > 0 && s.fits(s.queue[0].n); {
	case wants && s.place < 0:
		served.Push(s)
	case wants:
		served.Fix(s.place)
	case s.place >= 0:
		served.Remove(s.place)
	}
}

// fits reports whether n more bytes are within the share.
func (s *Share[R]) fits(n int) bool { return s.within(s.held.Load(), n) }

// within reports whether n more bytes are within the share if it holds some.
func (s *Share[R]) within(held int64, n int) bool { return held == 0 || held+int64(n) <= s.pool.limit }

// try allocates free memory if n fits. If another connection of the peer used up the share meanwhile, it gives the
// memory back and returns late.
func (s *Share[R]) try(n int) (b []byte, late bool) {
	b = s.pool.arena.Alloc(n)
	for b != nil {
		held := s.held.Load()
		if !s.within(held, n) {
			s.pool.arena.Free(b)
			return nil, true
		}
		if s.held.CompareAndSwap(held, held+int64(n)) {
			return b, false
		}
	}
	return nil, false
}

// Free returns memory from Alloc or grant, and serves waiting requests.
func (s *Share[R]) Free(b []byte) {
	s.held.Add(-int64(len(b)))
	s.pool.arena.Free(b)
	if s.queued.Load() > 0 {
		s.pool.mu.Lock()
		s.lineUp()
		s.pool.mu.Unlock()
	}
	s.pool.Serve()
}

// Serve grants memory to waiting requests, as far as it goes. It must be called when memory was freed other than by
// Free.
func (p *Pool[R]) Serve() {
	for p.waiting.Load() > 0 {
		r, b := p.next()
		if b == nil {
			return
		}
		p.grant(r, b)
	}
}

// next takes the oldest request that is within its share, with memory for it, or a later one if the time to save memory
// for the oldest is over.
func (p *Pool[R]) next() (r R, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lacking := false
	for s := p.oldest(); s != nil; {
		w := s.queue[0]
		b, late := s.try(w.n)
		switch {
		case b != nil:
			p.saved()
			s.queue[0] = waiter[R]{}
			s.queue = s.queue[1:]
			s.left(1)
			return w.r, b
		case late: // the memory is for others
			s = p.oldest()
		case p.save():
			return r, nil
		default:
			lacking = true
			s = p.oldestFor(w.n)
		}
	}
	p.saved()
	if lacking {
		p.tryLater()
	}
	return r, nil
}

// oldest returns the share with the oldest request that is within its share, or nil if there is none. Called with mu
// held.
func (p *Pool[R]) oldest() *Share[R] {
	for p.served.Len() > 0 {
		s := p.served.First()
		if s.fits(s.queue[0].n) {
			return s
		}
		s.lineUp() // it holds more by now
	}
	return nil
}

// oldestFor is oldest among the requests for fewer than less bytes, for which no memory was found.
func (p *Pool[R]) oldestFor(less int) (oldest *Share[R]) {
	for s := range p.hungry {
		w := &s.queue[0]
		if w.n < less && s.fits(w.n) && (oldest == nil || w.number < oldest.queue[0].number) {
			oldest = s
		}
	}
	return oldest
}

// save keeps free memory for a request that needs more. It returns false if that has failed. Called with mu held.
func (p *Pool[R]) save() bool {
	now := time.Now()
	switch {
	case now.Before(p.again):
		return false
	case !p.saving.Load():
		p.saving.Store(true)
		p.until = now.Add(patience)
		p.wait(now)
	case !now.Before(p.until):
		p.saved()
		p.again = now.Add(pause)
		return false
	}
	return true
}

// saved ends saving. Called with mu held.
func (p *Pool[R]) saved() {
	if p.saving.Load() {
		p.saving.Store(false)
		p.overdue.Stop()
		p.due = time.Time{}
	}
}

// tryLater tries again after patience for what found no memory, unless it will sooner: requests that keep arriving
// don't put it off. Called with mu held.
func (p *Pool[R]) tryLater() {
	if now := time.Now(); !now.Before(p.due) {
		p.wait(now)
	}
}

// wait starts overdue. Called with mu held.
func (p *Pool[R]) wait(now time.Time) {
	p.due = now.Add(patience)
	p.overdue.Reset(patience)
}

// left records that n requests have left the queue. Called with the pool's lock held.
func (s *Share[R]) left(n int) {
	s.queued.Add(-int32(n))
	s.pool.waiting.Add(-int32(n))
	s.lineUp()
	if len(s.queue) == 0 {
		s.queue = nil
		delete(s.pool.hungry, s)
	}
	if len(s.pool.hungry) == 0 {
		s.pool.saved()
	}
}

// Drop removes the waiting requests that match from the queue, and returns them. Those that waited behind them may be
// served.
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
	s.queue = slices.DeleteFunc(s.queue, func(w waiter[R]) bool {
		found := match(w.r)
		if found {
			dropped = append(dropped, w.r)
		}
		return found
	})
	s.left(len(dropped))
	return dropped
}
