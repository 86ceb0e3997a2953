package tcp

import (
	"sync"
	"sync/atomic"
	"time"
)

// censusPeriod is longer than one connection that looks can keep another from the processor.
const censusPeriod = 10 * time.Millisecond

// census counts, by period, the connections that have work. Data received for one connection while another
// looks may lie unread until the kernel preempts the other, so counting only the connections that have had a
// turn meanwhile would miss it.
type census struct {
	began time.Time

	mu          sync.Mutex
	period      int64
	now, before int          // connections counted in period, and in the one before it
	larger      atomic.Int32 // of now and before
}

// at returns the number of the period that t is in; numbers begin with 1.
func (c *census) at(t time.Time) int64 { return int64(t.Sub(c.began)/censusPeriod) + 1 }

// count counts one connection; each calls it once in a period.
func (c *census) count(period int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case period == c.period+1:
		c.period, c.before, c.now = period, c.now, 0
	case period > c.period:
		c.period, c.before, c.now = period, 0, 0
	}
	c.now++
	c.larger.Store(int32(max(c.now, c.before)))
}

// most returns how many connections had work in this period or in the one before it, whichever is more.
func (c *census) most() int { return int(c.larger.Load()) }
