package rc

import (
	"context"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Completions takes completions from a queue, one after another. Only one goroutine may use it.
type Completions struct {
	CQ    verbs.CQ
	event chan struct{} // ibv_comp_channel
	batch [16]verbs.WC
	ready []verbs.WC // the part of batch not returned yet
}

// NewCompletions makes a completion queue with the given number of entries.
func NewCompletions(dev verbs.Device, entries int) (*Completions, error) {
	c := &Completions{event: make(chan struct{}, 1)}
	var err error
	// The handler runs in the RNIC's own goroutine and must not block, so it only wakes Next.
	c.CQ, err = dev.CreateCQ(entries, func(verbs.CQ) {
		select {
		case c.event <- struct{}{}:
		default:
		}
	})
	return c, err
}

// Next waits for the next completion. Unless its status is success, it also returns an error.
func (c *Completions) Next(ctx context.Context) (verbs.WC, error) {
	for len(c.ready) == 0 {
		if n := c.CQ.Poll(c.batch[:]); n > 0 {
			c.ready = c.batch[:n]
			break
		}
		// Only a completion that arrives after this causes an event.
		if c.CQ.ReqNotify() {
			continue
		}
		select {
		case <-c.event:
		case <-ctx.Done():
			// Completions that arrived before the end are still returned.
			if n := c.CQ.Poll(c.batch[:]); n > 0 {
				c.ready = c.batch[:n]
				continue
			}
			return verbs.WC{}, fmt.Errorf("wait for a completion: %w", context.Cause(ctx))
		}
	}
	wc := c.ready[0]
	c.ready = c.ready[1:]
	if wc.Status != verbs.WCSuccess {
		return wc, &StatusError{WRID: wc.WRID, Status: wc.Status}
	}
	return wc, nil
}

// StatusError says that a work request failed.
type StatusError struct {
	WRID   uint64
	Status verbs.WCStatus
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("work request %d failed: %s", e.WRID, e.Status)
}
