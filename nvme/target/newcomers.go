package target

import "fmt"

// Every connection has a place among Limits.Connections from the beginning. Connections that never get further would
// keep everybody out, so when few places are left, one of these newcomers gives way to each connection that arrives
// (package crowd). A queue is a newcomer until Connect is granted, and its host has authenticated itself if it has to;
// on a discovery controller, which is open to all, it always is.

// crowdedShare says when newcomers give way: when at most 1/crowdedShare of the places is left. Connections that arrive
// use that until the newcomers have gone.
const crowdedShare = 8

// arrive gives q its place. Called with mu held; giveWay must be called for the queue that has to make room.
func (t *Target) arrive(q *Queue) (leaves *Queue, err error) {
	peer := q.attr.Remote.Addr()
	if most := t.limits.Connections; len(t.queues)-t.leaving >= most-most/crowdedShare {
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

// left notes that q has gone. Called with mu held.
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

// Proved reports whether the host has been let in: to an NVM subsystem, and authenticated if it has to be. It becomes
// true before the command that makes it so is answered.
func (q *Queue) Proved() bool {
	switch q.state.Load() {
	case queueConnected, queueFused, queueDraining:
		return !q.ctrl.sub.discovery
	}
	return false
}

// proved notes that q is no newcomer any more, if so.
func (q *Queue) proved() {
	if q.Proved() {
		q.t.mu.Lock()
		q.t.newcomers.Remove(q.newcomer)
		q.t.mu.Unlock()
	}
}
