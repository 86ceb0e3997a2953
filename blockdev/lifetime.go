package blockdev

import "sync/atomic"

// Lifetime counts the users of a volume, so that Close can wait for them. The zero value isn't usable; see NewLifetime.
// It has a cache line of its own.
type Lifetime struct {
	users atomic.Int64  // plus lifetimeClosed once Close was called
	idle  chan struct{} // signalled, with room for one, when the last user has left a closed volume
	_     [64 - 16]byte
}

const lifetimeClosed = 1 << 62

// NewLifetime returns a Lifetime without users.
func NewLifetime() *Lifetime {
	return &Lifetime{idle: make(chan struct{}, 1)}
}

// Enter counts a user. It returns false, and counts nothing, after Close was called.
func (l *Lifetime) Enter() bool {
	if l.users.Add(1) < lifetimeClosed {
		return true
	}
	l.Leave()
	return false
}

// Leave undoes one Enter.
func (l *Lifetime) Leave() {
	if l.users.Add(-1) == lifetimeClosed {
		select {
		case l.idle <- struct{}{}:
		default:
		}
	}
}

// Close lets no more users in and waits until the last has left. If it was called before, it returns false at once.
func (l *Lifetime) Close() bool {
	if !l.shut() {
		return false
	}
	l.wait()
	return true
}

// shut lets no more users in. It returns false if it was called before.
func (l *Lifetime) shut() bool {
	for {
		n := l.users.Load()
		if n >= lifetimeClosed {
			return false
		}
		if l.users.CompareAndSwap(n, n+lifetimeClosed) {
			return true
		}
	}
}

// wait waits until the last user of a shut volume has left.
func (l *Lifetime) wait() {
	for l.users.Load() != lifetimeClosed {
		<-l.idle
	}
}
