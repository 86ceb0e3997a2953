package blockdev

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// standstill is how long a program runs nothing at least when writes that it has may have been given up by those
	// who sent them, who wait for a second or more.
	standstill = 250 * time.Millisecond
	// hearing is how long it then has to hear of that.
	hearing = 50 * time.Millisecond

	beat  = 100 * time.Millisecond // of a sentry's timer
	beats = 10                     // without a write until that stops
)

// sentry notices that the program, or its machine, has stood still, by a timer that runs while there are writes: what
// had been received before may have been sent again by another path since. So who is about to begin such a write waits
// until those who receive packets have looked, and asks whether it is wanted.
type sentry struct {
	ticking atomic.Bool
	left    atomic.Int32 // beats
	beaten  atomic.Int64 // when the last was, in the time of this package
	stood   atomic.Int64 // when a standstill was noticed; 0: never

	mu    sync.Mutex
	timer *time.Timer // one for all beats
}

// began is where the time of this package begins.
var began = time.Now()

// watch says that there is a write.
func (s *sentry) watch() {
	if s.left.Load() < beats {
		s.left.Store(beats)
	}
	if s.ticking.Load() {
		return
	}
	s.beaten.Store(int64(time.Since(began))) // first: from the next line on pause looks at it
	if s.ticking.CompareAndSwap(false, true) {
		s.tickLater()
	}
}

// tickLater has tick called at the next beat.
func (s *sentry) tickLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		s.timer = time.AfterFunc(beat, s.tick)
	} else {
		s.timer.Reset(beat)
	}
}

// tick is the timer's.
func (s *sentry) tick() {
	s.pause()
	s.beaten.Store(int64(time.Since(began)))
	if s.left.Add(-1) > 0 {
		s.tickLater()
		return
	}
	s.ticking.Store(false)
	if s.left.Load() > 0 { // a write came before the line above
		s.watch()
	}
}

// pause is how long a write has to wait.
func (s *sentry) pause() time.Duration {
	now := int64(time.Since(began))
	if s.ticking.Load() && now-s.beaten.Load() > int64(standstill) {
		s.beaten.Store(now)
		s.stood.Store(now)
	}
	if stood := s.stood.Load(); stood != 0 {
		return max(0, time.Duration(stood-now)+hearing)
	}
	return 0
}

// unwanted tells whether nobody wants r any more.
func (r *Request) unwanted() bool { return r.Unwanted != nil && r.Unwanted() }
