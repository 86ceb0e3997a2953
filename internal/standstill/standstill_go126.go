//go:build go1.26

package standstill

import (
	"sync"
	"sync/atomic"
	"time"
)

// rare is the interval between blocking system calls above which no timer is needed soon.
const rare = 100 * time.Millisecond

// monitor keeps the timer going while there are users.
var monitor struct {
	mu    sync.Mutex
	users int
	timer *time.Timer
	seen  uint64        // calls at the last look
	next  time.Duration // until the next look
}

// calls counts blocking system calls of all users.
var calls atomic.Uint64

// Blocks says that a blocking system call is about to be made. It costs an atomic addition.
func Blocks() { calls.Add(1) }

// Enter counts a user.
func Enter() {
	m := &monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users++; m.users > 1 {
		return
	}
	m.next = Bound
	if m.timer == nil {
		m.timer = time.AfterFunc(Bound, wakeMonitor)
	} else {
		m.timer.Reset(Bound)
	}
}

// wakeMonitor has done its work by becoming due. It makes sure that it becomes due again.
func wakeMonitor() {
	m := &monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users == 0 {
		return
	}
	n := calls.Load()
	m.next = pause(m.next, n-m.seen)
	m.seen = n
	m.timer.Reset(m.next)
}

// pause returns the timer's next interval after one of length last with n blocking system
// calls: twice as long while there are few, up to IdleBound.
func pause(last time.Duration, n uint64) time.Duration {
	if n > uint64(last/rare) {
		return Bound
	}
	return min(2*last, IdleBound)
}

// Leave takes back one Enter.
func Leave() {
	m := &monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users--; m.users == 0 {
		m.timer.Stop()
	}
}

// Users returns the number of users, for their tests.
func Users() int {
	m := &monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.users
}
