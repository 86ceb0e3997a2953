package multipath

import "sync/atomic"

// PathCounters counts what one path did. The counters only grow.
type PathCounters struct {
	Begun    atomic.Uint64 // requests sent
	Ended    atomic.Uint64 // … and ended
	Retried  atomic.Uint64 // of those that ended, the ones sent again
	Connects atomic.Uint64 // how often it became live
	Failures atomic.Uint64 // attempts to connect that failed
	Losses   atomic.Uint64 // how often a live controller was lost
}

// underWay returns the number of requests that have been sent and have not ended.
func (c *PathCounters) underWay() int64 {
	ended := c.Ended.Load() // first: later more may have ended than had begun
	return int64(c.Begun.Load() - ended)
}

// Counters counts the requests that no path could take.
type Counters struct {
	Waited atomic.Uint64 // waited for a path
	Failed atomic.Uint64 // ended because no path came, or because every path was lost with them
}
