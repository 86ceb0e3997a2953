package blockdev

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// standstill is the shortest time without running after which the senders of the program's pending writes may have
	// given them up; they wait for a second or more.
	standstill = 250 * time.Millisecond
	// hearing is how long the program then has to learn of that.
	hearing = 50 * time.Millisecond

	beat  = 100 * time.Millisecond // of a sentry's timer
	beats = 10                     // without a write until the timer stops
)

// sentry notices that the program, or its machine, stood still, by a timer that runs while there are writes: a write
// that was received before may have been sent again over another path since. So before such a write begins, it waits
// until those who receive packets have looked, and its Unwanted is called.
type sentry struct {
	ticking atomic.Bool
	left    atomic.Int32 // beats
	beaten  atomic.Int64 // time of the last one, since began
	stood   atomic.Int64 // when a standstill was noticed, since began; 0 means never

	mu    sync.Mutex
	timer *time.Timer // one for all beats
}

// began is the origin of this package's times.
var began = time.Now()

// watch says that there is a write.
func (s *sentry) watch() {
	if s.left.Load() < beats {
		s.left.Store(beats)
	}
	if s.ticking.Load() {
		return
	}
	s.beaten.Store(int64(time.Since(began))) // first: after the next line, pause looks at it
	if s.ticking.CompareAndSwap(false, true) {
		s.tickLater()
	}
}

// tickLater schedules tick for the next beat.
func (s *sentry) tickLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		s.timer = time.AfterFunc(beat, s.tick)
	} else {
		s.timer.Reset(beat)
	}
}

// tick is the timer's function.
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

// pause returns how long a write has to wait.
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

// changes reports whether r changes the volume's content.
func (r *Request) changes() bool { return r.Op != OpRead && r.Op != OpFlush }

// unwanted reports whether r is no longer wanted. What has begun, and has its range, is finished nevertheless: a block of
// it may be half written, and nobody else has written there since.
func (r *Request) unwanted() bool {
	return r.Unwanted != nil && (!r.locked || r.done == 0) && r.Unwanted()
}
