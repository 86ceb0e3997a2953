//go:build go1.26

package standstill

import (
	"sync"
	"time"
)

// monitor keeps the timer going while there are users.
var monitor struct {
	mu    sync.Mutex
	users int
	timer *time.Timer
}

// Enter counts a user.
func Enter() {
	m := &monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users++; m.users > 1 {
		return
	}
	if m.timer == nil {
		m.timer = time.AfterFunc(Bound, wakeMonitor)
	} else {
		m.timer.Reset(Bound)
	}
}

// wakeMonitor has done its work by being due.
func wakeMonitor() {
	m := &monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users > 0 {
		m.timer.Reset(Bound)
	}
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

// Users counts them.
func Users() int {
	m := &monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.users
}
