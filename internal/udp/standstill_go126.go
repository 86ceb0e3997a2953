//go:build go1.26

package udp

import (
	"sync"
	"time"
)

// standstill is how long the whole program may stand still when a stop of the world (the
// garbage collector has two a cycle) meets a thread that is just about to block in recvmmsg.
//
// Since Go 1.26 a goroutine looks whether the world is being stopped before it is seen to be in
// a system call, not after. One that begins to block between the two keeps its P; the stop waits
// for it, and the runtime's monitor, which would take the P away, sleeps while the world is
// being stopped: until the next timer is due, or for a minute. So there is always a timer due
// soon while a socket is open, which costs 0.03% of a processor. Up to Go 1.25 nobody had to do
// this.
const standstill = 250 * time.Millisecond

// monitor keeps the timer going while there are users.
var monitor struct {
	mu    sync.Mutex
	users int
	timer *time.Timer
}

func keepMonitorAwake() {
	m := &monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users++; m.users > 1 {
		return
	}
	if m.timer == nil {
		m.timer = time.AfterFunc(standstill, wakeMonitor)
	} else {
		m.timer.Reset(standstill)
	}
}

// wakeMonitor has done its work by being due.
func wakeMonitor() {
	m := &monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users > 0 {
		m.timer.Reset(standstill)
	}
}

func letMonitorSleep() {
	m := &monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users--; m.users == 0 {
		m.timer.Stop()
	}
}
