// Package standstill bounds how long a Go 1.26 program may stand still over a blocking system
// call. Whoever has a goroutine block in one again and again, outside of the runtime's poller,
// calls Enter before, Blocks each time, and Leave when that is over.
//
// Since Go 1.26 a goroutine looks whether the world is being stopped (the garbage collector
// does it twice a cycle) before it is seen to be in a system call, not after. One that begins to
// block between the two keeps its P; the stop waits for it, and the runtime's monitor, which
// would take the P away, sleeps while the world is being stopped: until the next timer is due,
// or for a minute. So there is always a timer due soon while there are users. Each time costs the
// runtime about half a millisecond until all of it sleeps again, so the timer is rarer while
// nearly nobody blocks, and nearly nobody can be caught. Up to Go 1.25 nobody had to do this.
package standstill

import "time"

// Bound is how long the program may stand still, IdleBound how long where its users have blocked less
// often than every tenth of a second.
const (
	Bound     = 250 * time.Millisecond
	IdleBound = 4 * time.Second
)
