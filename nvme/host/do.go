package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// cancelGrace is how long a command whose context has ended may stay outstanding after it was aborted. Only closing
// the connection can free the memory of a command earlier.
const cancelGrace = 5 * time.Second

// Do submits r and waits until it has ended. It overwrites r.Done. The error is that of Check.
//
// If ctx ends first, the command is aborted (NVMe Abort), and Do still waits for it to end, because until then the
// transport may use r.Data; the error then wraps that of ctx, unless the command succeeded anyway. A controller
// that neither answers nor aborts the command within five seconds is given up.
func (q *Queue) Do(ctx context.Context, r *Request) error { return do(ctx, q, r, q.attr.QID) }

// sender is what Do needs of a Queue or a Carrier.
type sender interface {
	SubmitOne(r *Request)
	Cancel(r *Request, last bool)
}

// urgent sends urgent requests on a queue.
type urgent struct{ *Queue }

// SubmitOne implements sender.
func (u urgent) SubmitOne(r *Request) { u.submitUrgent(r) }

// do is Queue.Do for any sender; qid is that of the sender's queues.
func do(ctx context.Context, s sender, r *Request, qid uint16) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nvme: %s: %w", r.Cmd.Name(qid), err)
	}
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
	}
	r.Done = wakeDoer
	s.SubmitOne(r)
	select {
	case <-r.wake:
		return r.Check()
	case <-ctx.Done():
	}
	grace := startGrace(func() { s.Cancel(r, true) })
	r.cancelled.Store(true)
	s.Cancel(r, false)
	<-r.wake
	grace.end()
	r.reuse()
	if err := r.Check(); err != nil {
		return fmt.Errorf("%w: %w", err, ctx.Err())
	}
	return nil
}

// grace is the time between a cancellation and the last resort, which is to give up the controller.
type grace struct {
	timer *time.Timer
	over  chan struct{}
}

// startGrace starts the time after which last is called.
func startGrace(last func()) *grace {
	over := make(chan struct{})
	return &grace{time.AfterFunc(cancelGrace, func() { last(); close(over) }), over}
}

// end returns when last isn't running and won't run: its requests can be used again.
func (g *grace) end() {
	if !g.timer.Stop() {
		<-g.over
	}
}

var errNotAborted = fmt.Errorf("%w: a cancelled command was neither answered nor aborted within %v", ErrTimeout, cancelGrace)

// errNotSent is the Err of a request that was cancelled before it was sent.
var errNotSent = errors.New("nvme: the command still waited for a free queue entry")

// Cancel ends r at once if it waits for a free entry, and has it aborted if it is outstanding. If last is set and r
// is still outstanding, the controller is given up. A request that isn't in this queue, or no longer, is left
// alone.
func (q *Queue) Cancel(r *Request, last bool) {
	q.mu.Lock()
	if q.waiting.remove(r) || q.urgent.remove(r) {
		q.mu.Unlock()
		q.cut(r, errNotSent, false)
		return
	}
	// Search for it: r.Slot belongs to another queue as soon as a Carrier sends r elsewhere.
	i := slices.IndexFunc(q.slots, func(s slot) bool { return s.req == r })
	if i < 0 {
		q.mu.Unlock()
		return
	}
	cid := q.slots[i].cid
	q.mu.Unlock()
	if last {
		q.owner.giveUp(q, errNotAborted)
		return
	}
	q.owner.abort(q, cid)
}

func wakeDoer(r *Request) { r.wake <- struct{}{} }
