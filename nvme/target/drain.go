package target

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

const (
	// drainLook is how often Drain checks whether commands are done. A notification instead would cost every command
	// something.
	drainLook = 5 * time.Millisecond
	// drainEnd bounds how long Drain waits for connections that it closed to be gone.
	drainEnd = 5 * time.Second
)

// Drain disconnects every host in an orderly way. From now on connections and controllers are refused, in a way that
// makes hosts try again, and I/O queues begin no new commands. When all commands under way are answered and the answers
// are out, or when ctx ends, every connection is closed, and Drain returns when they are gone. Commands that arrived
// too late were not executed: hosts send them again by another path, or when they can connect again. The error says
// what was cut off.
//
// The target goes on refusing hosts until Resume is called, which also ends a Drain that still waits: connections that
// have stopped beginning commands are closed, and the others stay.
func (t *Target) Drain(ctx context.Context) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	t.draining = true
	t.mu.Unlock()
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	left := t.quiesce()
	for left > 0 && ctx.Err() == nil && t.Draining() {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		left = t.quiesce()
	}
	if !t.Draining() {
		t.letGo()
		return errors.New("target: draining: hosts were taken again before all had gone")
	}
	for _, q := range t.allQueues() {
		q.disconnect(ErrDraining)
	}
	open := t.connections()
	for end := time.Now().Add(drainEnd); open > 0 && time.Now().Before(end); open = t.connections() {
		<-tick.C
	}
	switch {
	case left > 0:
		return fmt.Errorf("target: draining: commands that were cut off: %d, connections that have not ended: %d: %w", left, open, context.Cause(ctx))
	case open > 0:
		return fmt.Errorf("target: draining: connections that have not ended: %d", open)
	}
	return nil
}

// letGo closes the connections that begin no more commands.
func (t *Target) letGo() {
	for _, q := range t.allQueues() {
		if q.state.Load() == queueDraining {
			q.disconnect(ErrDraining)
		}
	}
}

// Resume makes the target take hosts again after, or during, Drain.
func (t *Target) Resume() {
	t.mu.Lock()
	t.draining = false
	t.mu.Unlock()
}

// Draining reports whether hosts are refused because of Drain.
func (t *Target) Draining() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.draining
}

func (t *Target) allQueues() []*Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.queues))
}

// quiesce stops every I/O queue, including those that were just being connected, and returns how many commands are
// under way. Admin queues go on, for Keep Alive and Abort.
func (t *Target) quiesce() (left int) {
	for _, q := range t.allQueues() {
		left += q.quiesce()
	}
	// A command is answered before its answer is out, but it uses its namespace until then.
	t.mu.Lock()
	subs := t.sortedSubsystems()
	t.mu.Unlock()
	users := 0
	for _, s := range subs {
		for _, ns := range s.all() {
			users += int(ns.users())
		}
	}
	return max(left, users)
}

// quiesce stops an I/O queue, and returns how many commands of a queue are under way. A queue that holds the first half
// of a fused operation is stopped when it has the other.
func (q *Queue) quiesce() int {
	if !q.connected() {
		return 0
	}
	if q.qid != 0 {
		q.state.CompareAndSwap(queueConnected, queueDraining)
		return q.underWay()
	}
	q.ctrl.mu.Lock()
	defer q.ctrl.mu.Unlock()
	return q.busy()
}

// use notes a request that the transport uses for the first time.
func (q *Queue) use(r *Request) {
	q.stop.Lock()
	q.requests = append(q.requests, r)
	q.stop.Unlock()
}

// underWay returns the number of commands that were begun and are not answered, except those that are kept.
func (q *Queue) underWay() int {
	q.stop.Lock()
	defer q.stop.Unlock()
	return q.inFlight() - len(q.stopped)
}

// keep keeps a command that arrived on a queue that begins no more, or gives it back if the connection is ending.
func (q *Queue) keep(r *Request) {
	q.stop.Lock()
	if q.state.Load() == queueDraining {
		q.stopped = append(q.stopped, r)
		q.stop.Unlock()
		return
	}
	q.stop.Unlock()
	r.respond(nvme.StatusAbortSQDeleted)
}

// giveBack gives the kept commands back to the transport, which can't respond any more.
func (q *Queue) giveBack() {
	q.stop.Lock()
	kept := q.stopped
	q.stopped = nil
	q.stop.Unlock()
	for _, r := range kept {
		r.respond(nvme.StatusAbortSQDeleted)
	}
}
