package cm

import (
	"net/netip"
	"time"
)

// use is what one peer has of a manager.
type use struct{ connections, halfOpen int }

// uses counts by peer address. One without connections is forgotten.
type uses map[netip.Addr]use

func (u uses) add(a netip.Addr, connections, halfOpen int) {
	n := u[a]
	n.connections += connections
	n.halfOpen += halfOpen
	if n == (use{}) {
		delete(u, a)
		return
	}
	u[a] = n
}

// full says whether a request of src is one too many. Called with mu held.
func (m *Manager) full(src netip.Addr, listener *cmID) bool {
	n := m.table.uses[src]
	return listener.waiting >= listener.backlog ||
		len(m.table.byLocal) >= m.cfg.MaxConnections || n.connections >= m.cfg.MaxPerPeer ||
		m.counters.HalfOpen.Load() >= int64(m.cfg.MaxHalfOpen) || n.halfOpen >= m.cfg.MaxHalfOpenPerPeer
}

// maxHalfOpenTime bounds how long a peer that doesn't confirm keeps a passive connection.
const maxHalfOpenTime = 20 * time.Second

// passiveRetries is how often a REP is sent again: as often as the peer asks for, within
// maxHalfOpenTime.
func passiveRetries(asked uint8, interval time.Duration) int {
	return min(int(asked), int(maxHalfOpenTime/interval)-1)
}

// Answers to messages that belong to no connection, refusals among them, and requests that reach
// a listener, in the long run and at once. More get no answer: those who need one ask again.
const (
	answerRate  = 1000 // a second
	answerBurst = 1000
)

// throttle is a token bucket. It belongs to the manager's goroutine.
type throttle struct {
	spent float64
	last  time.Time
}

func (t *throttle) take(now time.Time) bool {
	t.spent = max(0, t.spent-answerRate*now.Sub(t.last).Seconds())
	t.last = now
	if t.spent+1 > answerBurst {
		return false
	}
	t.spent++
	return true
}
