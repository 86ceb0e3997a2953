// Package standstill bounds how long a Go 1.26 program may stand still because of a blocking system call. A user that
// has a goroutine block in one again and again, outside of the runtime's poller, calls Enter before it starts, Blocks
// before each call, and Leave when it is done.
//
// Since Go 1.26 a goroutine that enters a system call checks whether the world is being stopped (the garbage collector
// does so twice a cycle) before it is marked as being in the call, not after. If the stop begins between the two, the
// goroutine keeps its P and blocks; the stop waits for it, and the runtime's monitor, which would take the P away,
// sleeps while the world is being stopped: until the next timer is due, or for a minute. So while there are users, a
// timer is always due soon. Each time it is due it costs the runtime about half a millisecond until all of it sleeps
// again, so the timer is rarer while hardly any goroutine blocks, and so hardly any can be caught. Up to Go 1.25 this
// was not necessary.
package standstill

import "time"

// Bound is how long the program may stand still; IdleBound is how long if its users have blocked less often than every
// tenth of a second.
const (
	Bound     = 250 * time.Millisecond
	IdleBound = 4 * time.Second
)
