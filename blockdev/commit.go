package blockdev

import (
	"sync"
	"sync/atomic"
)

// commits makes writes durable, for flushes and for writes with FUA that the system can't
// make durable by themselves. One sync runs at a time and all who wait for it are told of
// its error, since the system, or the disk, tells it only once.
type commits struct {
	group    FlushGroup
	failures atomic.Uint32 // syncs that failed
	epoch    atomic.Uint32 // failures, and flushes that were told of one

	mu   sync.Mutex
	last error // of the sync that failed last
	owed bool  // a flush is to be told of it
	told bool  // one was, of those that the running sync answers
}

// begin notes that r is submitted.
func (c *commits) begin(r *Request) {
	if r.Op == OpFlush {
		r.mark = c.epoch.Load()
	} else {
		r.mark = c.failures.Load()
	}
}

// late tells whether a sync has failed since r was submitted, and so may have lost a part of what it wrote. A flush may
// have been told of that already, and the next would promise what isn't there: r has to join, and is told itself.
func (c *commits) late(r *Request) bool { return r.mark != c.failures.Load() }

// fail notes that a sync failed: one of the group's, or that in a write with RWF_DSYNC. There the disk may have failed to
// empty its cache, with what others had written, and it tells nobody else.
func (c *commits) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.owed, c.told = err, true, false
	c.failures.Add(1)
	c.epoch.Add(1)
}

// join adds r, whose data the system has taken, and returns true where r must run.
func (c *commits) join(r *Request) bool { return c.group.Lead(r) }

// end is the last sync, when nothing is submitted any more. It fails also for a sync that failed before, where no flush
// has told so.
func (c *commits) end(sync func() error) error {
	if err := sync(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owed && !c.told {
		return c.last
	}
	return nil
}

// run answers r, for which join returned true, and those that joined meanwhile.
//
// A write-back that failed may have been that of any write which the system had taken by
// then, and its error is told only to the sync that met it. So a write fails where any sync
// failed since it was submitted. And flushes fail until one is told that was submitted after
// the failure, since it covers all such writes; with it fail those that were submitted before
// it was told.
func (c *commits) run(r *Request, sync func() error, done func(*Request, error)) {
	c.group.Run(r, func() error {
		c.settle()
		err := sync()
		if err != nil {
			c.fail(err)
		}
		return err
	}, func(r *Request, err error) {
		if err == nil {
			err = c.lost(r)
		}
		done(r, err)
	})
}

// settle is called before a sync: what a flush of those before it was told is no longer owed.
func (c *commits) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told {
		c.owed, c.told = false, false
	}
}

// lost is what r is told where its own sync didn't fail: of one that did.
func (c *commits) lost(r *Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := c.late(r)
	if r.Op == OpFlush {
		covers := r.mark == c.epoch.Load() // it was submitted since
		late = c.owed || !covers
		if c.owed && covers {
			c.told = true
			c.epoch.Add(1)
		}
	}
	if late {
		return c.last
	}
	return nil
}
