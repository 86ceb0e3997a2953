package target

import "fmt"

// Whoever connects has a place among Limits.Connections from the beginning. Those who never get further
// would keep everybody out, so where few places are left one of them gives way to each who comes (package
// crowd). A queue is a newcomer until Connect is granted, and its host has authenticated itself where it has
// to; with a discovery controller, which is open to all, for good.

// crowdedShare is the part of a resource from which newcomers give way: what is left is for those who come
// until they have gone.
const crowdedShare = 8

// crowded says whether so much is taken of a resource that newcomers give way.
func crowded[N int | int64](taken, limit N) bool { return taken >= limit-limit/crowdedShare }

// arrive gives q its place. Called with mu held; giveWay is to be called for who has to make room.
func (t *Target) arrive(q *Queue) (leaves *Queue, err error) {
	peer := q.attr.Remote.Addr()
	if crowded(len(t.queues)-t.leaving, t.limits.Connections) {
		if m := t.newcomers.Yield(peer); m != nil {
			leaves = m.Conn
			leaves.leaves = true
			t.leaving++
			t.totals(leaves.attr.Transport).gaveWay++
		}
	}
	switch n := len(t.queues); {
	case n < t.limits.Connections:
	case t.leaving > 0:
		return leaves, fmt.Errorf("target: %w: %d connections, of which %d are ending", ErrMakingRoom, n, t.leaving)
	default:
		return nil, fmt.Errorf("target: %w: %d connections", ErrLimit, n)
	}
	t.queues[q] = struct{}{}
	q.newcomer = t.newcomers.Add(peer, q)
	return leaves, nil
}

// left takes note that q has gone. Called with mu held.
func (t *Target) left(q *Queue) {
	t.newcomers.Remove(q.newcomer)
	if q.leaves {
		t.leaving--
	}
}

// giveWay ends the connection of a newcomer.
func (q *Queue) giveWay() {
	q.t.log.Warn("connection closed: the host has proved nothing, and others need its place", q.identity()...)
	q.disconnect(ErrGaveWay)
}

// Proved says whether the host has been let in: to an NVM subsystem, and authenticated where it has to be. It
// turns true before the command is answered that makes it so.
func (q *Queue) Proved() bool {
	switch q.state.Load() {
	case queueConnected, queueFused, queueDraining:
		return !q.ctrl.sub.discovery
	}
	return false
}

// proved notes that q may stay, where it may.
func (q *Queue) proved() {
	if q.Proved() {
		q.t.mu.Lock()
		q.t.newcomers.Remove(q.newcomer)
		q.t.mu.Unlock()
	}
}
