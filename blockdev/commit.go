package blockdev

import (
	"sync"
	"sync/atomic"
)

// commits makes writes durable, for flushes and for writes with FUA that the system can't make durable by themselves.
// One sync runs at a time, and all requests that wait for it get its error, since the system, or the disk, reports an
// error only once.
type commits struct {
	group    *FlushGroup
	failures atomic.Uint32 // syncs that failed
	epoch    atomic.Uint32 // failures, and flushes that reported one
	dsyncs   dsyncs

	answering atomic.Int32 // writes that are answered, since no sync had failed
	straggler atomic.Bool  // one of them may be of before the last failure

	mu   sync.Mutex
	last error // of the sync that failed last
	owed bool  // a flush has yet to report it
	told bool  // a flush that the running sync answers has reported it
}

// init sets how a sync is done, and how a request is completed.
func (c *commits) init(sync func() error, done func(*Request, error)) {
	c.group = NewFlushGroup(func() error { return c.sync(sync) }, func(r *Request, err error) { c.answer(r, err, done) })
}

// begin records that r is submitted.
func (c *commits) begin(r *Request) {
	if r.Op != OpFlush {
		r.mark = c.failures.Load()
		return
	}
	r.mark = c.epoch.Load()
	if c.straggler.Load() && c.straggles() {
		r.mark-- // it doesn't cover all that the failure concerns
	}
}

// straggles reports whether a write may still be answered as if the last sync that failed had not.
func (c *commits) straggles() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.straggler.Store(c.answering.Load() != 0)
	return c.straggler.Load()
}

// answers returns true if r, a write that the system has accepted, may be answered: the caller does so, and then calls
// answered. A sync that fails between is reported to a flush that is submitted after both. If answers returns false, r
// must join.
func (c *commits) answers(r *Request) bool {
	c.answering.Add(1)
	if c.late(r) {
		c.answered()
		return false
	}
	return true
}

func (c *commits) answered() { c.answering.Add(-1) }

// late reports whether a sync has failed since r was submitted, and so may have lost a part of what r wrote. A flush
// may already have reported that failure, and the next flush would promise data that isn't there: so r has to join, and
// reports it itself.
func (c *commits) late(r *Request) bool { return r.mark != c.failures.Load() }

// fail records that a sync failed: one of the group's, or the implicit one in a write with RWF_DSYNC. In the latter the
// disk may have failed to empty its cache, which held data of other writes, and it reports that to nobody else.
func (c *commits) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.owed, c.told = err, true, false
	c.failures.Add(1)
	c.straggler.Store(c.answering.Load() != 0)
	c.epoch.Add(1)
}

// join adds r, whose data the system has accepted, and returns true if the caller must call run with r.
func (c *commits) join(r *Request) bool { return c.group.Lead(r) }

// end does the last sync, when nothing more is submitted. It also fails if an earlier sync failed and no flush has
// reported it.
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

// run answers r, for which join returned true, and the requests that join meanwhile.
func (c *commits) run(r *Request) { c.group.Run(r) }

// sync does a sync. A flush also waits for the writes with RWF_DSYNC that are under way, as each is a sync that may fail
// (see dsyncs).
func (c *commits) sync(sync func() error) error {
	c.settle()
	err := sync()
	if err != nil {
		c.fail(err)
	} else {
		c.dsyncs.wait()
	}
	return err
}

// answer answers r, for which a sync returned err.
//
// A failed write-back may have been that of any write that the system had accepted by then, and its error is reported
// only to the sync that met it. So a write fails if any sync failed since it was submitted. Flushes fail until the
// failure has been reported to one that was submitted after it, and after the writes that were being answered, since
// that flush covers all such writes; those submitted before it was reported fail, too.
func (c *commits) answer(r *Request, err error, done func(*Request, error)) {
	tells := false
	if err == nil {
		tells, err = c.lost(r)
	}
	done(r, err)
	if tells {
		c.epoch.Add(1) // only now: what was submitted before the answer must not rely on it
	}
}

// settle is called before a sync: what an earlier flush has reported is no longer owed.
func (c *commits) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told {
		c.owed, c.told = false, false
	}
}

// lost returns the error of an earlier failed sync that r must report though its own sync succeeded; nil if there is
// none. tells says that it is then no longer owed: the caller begins a new epoch when r has been answered.
func (c *commits) lost(r *Request) (tells bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := c.late(r)
	if r.Op == OpFlush {
		covers := r.mark == c.epoch.Load() // it was submitted after that
		late, tells = c.owed || !covers, c.owed && covers
		c.told = c.told || tells
	}
	if late {
		return tells, c.last
	}
	return false, nil
}
