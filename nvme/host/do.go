package host

import (
	"context"
	"errors"
	"fmt"
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
func (q *Queue) Do(ctx context.Context, r *Request) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nvme: %s: %w", r.Cmd.Name(q.attr.QID), err)
	}
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
	}
	r.Done = wakeDoer
	q.SubmitOne(r)
	select {
	case <-r.wake:
		return r.Check()
	case <-ctx.Done():
	}
	grace := time.AfterFunc(cancelGrace, func() { q.owner.giveUp(q, errNotAborted) })
	q.cancel(r)
	<-r.wake
	grace.Stop()
	if err := r.Check(); err != nil {
		return fmt.Errorf("%w: %w", err, ctx.Err())
	}
	return nil
}

var errNotAborted = fmt.Errorf("%w: a cancelled command was neither answered nor aborted within %v", ErrTimeout, cancelGrace)

// errNotSent is the Err of a request that was cancelled before it was sent.
var errNotSent = errors.New("nvme: the command still waited for a free queue entry")

// cancel ends a waiting request at once, and has an outstanding one aborted.
func (q *Queue) cancel(r *Request) {
	q.mu.Lock()
	if q.waiting.remove(r) {
		q.mu.Unlock()
		q.cut(r, errNotSent)
		return
	}
	// A request without a slot, or with one that is another's by now, has ended.
	s := slot{}
	if int(r.Slot) < len(q.slots) && q.slots[r.Slot].req == r {
		s = q.slots[r.Slot]
	}
	q.mu.Unlock()
	if s.req != nil {
		q.owner.abort(q, s.cid)
	}
}

func wakeDoer(r *Request) { r.wake <- struct{}{} }
