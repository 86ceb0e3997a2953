package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// cancelGrace is how long a command whose context has ended may stay outstanding after it was
// aborted. The memory of a command can be had back earlier only by closing the connection.
const cancelGrace = 5 * time.Second

// Do submits r and waits until it has ended. It uses r.Done. The error is that of Check.
//
// When ctx ends first, the command is aborted (NVMe Abort), and Do still waits for its end,
// because until then the transport may use r.Data; the error then wraps that of ctx, unless
// the command succeeded all the same. A controller that neither answers nor aborts the command
// within five seconds is given up.
func (q *Queue) Do(ctx context.Context, r *Request) error { return do(ctx, q, r, q.attr.QID) }

// sender is what Do needs of a Queue or a Carrier.
type sender interface {
	SubmitOne(r *Request)
	Cancel(r *Request, last bool)
}

// do is Queue.Do on any sender; qid is that of the queues it has.
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
	r.cancelled.Store(false)
	if err := r.Check(); err != nil {
		return fmt.Errorf("%w: %w", err, ctx.Err())
	}
	return nil
}

// grace is the time between a cancellation and the last means to bring about the end.
type grace struct {
	timer *time.Timer
	over  chan struct{}
}

// startGrace has last called when it is over.
func startGrace(last func()) *grace {
	over := make(chan struct{})
	return &grace{time.AfterFunc(cancelGrace, func() { last(); close(over) }), over}
}

// end returns when last doesn't run, nor will: its requests can be used again.
func (g *grace) end() {
	if !g.timer.Stop() {
		<-g.over
	}
}

var errNotAborted = fmt.Errorf("%w: a cancelled command was neither answered nor aborted within %v", ErrTimeout, cancelGrace)

// errNotSent is the Err of a request that was cancelled before it was sent.
var errNotSent = errors.New("nvme: the command still waited for a free queue entry")

// Cancel ends r at once if it waits for a free entry, and has it aborted if it is outstanding.
// One that is still outstanding the last time ends the controller. A request that isn't here,
// or not any more, is left alone.
func (q *Queue) Cancel(r *Request, last bool) {
	q.mu.Lock()
	if q.waiting.remove(r) {
		q.mu.Unlock()
		q.cut(r, errNotSent, false)
		return
	}
	// By a search: r.Slot is another queue's as soon as a Carrier sends r elsewhere.
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
