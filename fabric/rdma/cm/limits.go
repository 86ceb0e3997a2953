package cm

import (
	"net/netip"
	"time"
)

// use is what one peer has in a manager: all its connections, those that it hasn't confirmed, and the standing ones,
// which it has.
type use struct{ connections, halfOpen, standing int }

// uses counts by peer address. An address without connections has no entry.
type uses map[netip.Addr]use

func (u uses) add(a netip.Addr, more use) {
	n := u[a]
	n.connections += more.connections
	n.halfOpen += more.halfOpen
	n.standing += more.standing
	if n == (use{}) {
		delete(u, a)
		return
	}
	u[a] = n
}

// full reports whether a request of src is one too many. Called with mu held.
func (m *Manager) full(src netip.Addr, listener *cmID) bool {
	n := m.table.uses[src]
	return listener.waiting >= listener.backlog ||
		len(m.table.byLocal) >= m.cfg.MaxConnections || n.connections >= m.cfg.MaxPerPeer || n.halfOpen >= m.cfg.MaxHalfOpenPerPeer
}

// makeRoom makes sure that there is a place for one more half-open connection of src: if all are taken, one that waits
// for its peer gives way (package crowd). It returns the packets to send, and false if there is no room. Called with mu
// held.
func (m *Manager) makeRoom(src netip.Addr) (out []packet, ok bool) {
	if m.counters.HalfOpen.Load() < int64(m.cfg.MaxHalfOpen) {
		return nil, true
	}
	old := m.table.unconfirmed.Yield(src)
	if old == nil {
		return nil, false
	}
	m.counters.GaveWay.Add(1)
	return m.apply(old.Conn, func(fx *effects) { old.Conn.giveWay(fx) }), true
}

// requestsOf returns the throttle for a request of src. Peers that have confirmed a connection share a separate one; a
// sender that forges its address and can't read the answers can't have confirmed any.
func (m *Manager) requestsOf(src netip.Addr) *throttle {
	if m.table.uses[src].standing > 0 {
		return &m.known
	}
	return &m.requests
}

// maxHalfOpenTime limits how long a peer that doesn't confirm keeps a passive connection.
const maxHalfOpenTime = 20 * time.Second

// passiveRetries returns how often a REP is sent again: as often as the peer asks for, within maxHalfOpenTime.
func passiveRetries(asked uint8, interval time.Duration) int {
	return min(int(asked), int(maxHalfOpenTime/interval)-1)
}

// shares divides limit places among addresses: each gets no more than it leaves to the others. An address that floods
// gets half, two get a third each, and as much is left for the next one. There is an entry for each address that got
// something, at most limit.
type shares struct {
	limit, given int
	of           map[netip.Addr]int
}

func newShares(limit int) shares { return shares{limit: limit, of: map[netip.Addr]int{}} }

// take reports whether src gets one more.
func (s *shares) take(src netip.Addr) bool {
	n := s.of[src]
	if n >= s.limit-s.given {
		return false
	}
	s.of[src] = n + 1
	s.given++
	return true
}

// clear takes all places back.
func (s *shares) clear() {
	s.given = 0
	clear(s.of)
}

// perSecond limits the answers to messages that belong to no connection, including refusals, and the requests that
// reach a listener. Any more get no answer: a peer that needs one asks again.
const perSecond = 1000

// throttle divides what may be done in a second among addresses. It belongs to the manager's goroutine.
type throttle struct {
	shares
	since time.Time
}

func newThrottle() throttle { return throttle{shares: newShares(perSecond)} }

func (t *throttle) take(src netip.Addr, now time.Time) bool {
	if now.Sub(t.since) >= time.Second {
		t.since = now
		t.clear()
	}
	return t.shares.take(src)
}
