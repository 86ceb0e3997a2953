package target

import "sync/atomic"

// chain runs a command that takes several operations of a volume, one after the other.
// Operations that complete inline are taken in a loop rather than in a recursion, which could
// become deep.
type chain struct {
	turn atomic.Uint32
	// next prepares e.io (for e.ns) and returns true, or responds and returns false.
	next    func(*Request) bool
	started bool
	pos     int // of next's own
	end     int
	piece   *piece       // Compare
	table   []*Namespace // Flush of all
}

const (
	turnOpen uint32 = iota // the operation is submitted
	turnDone               // it completed before Submit returned
	turnLate               // Submit returned before it completed
)

// run starts a chain.
func (r *Request) run(pos, end int, next func(*Request) bool) {
	c := &r.engine.chain
	c.next, c.started, c.pos, c.end = next, false, pos, end
	r.engine.after = (*Request).chained
	r.drive()
}

func (r *Request) drive() {
	e := &r.engine
	for e.chain.next(r) {
		e.chain.started = true
		e.chain.turn.Store(turnOpen)
		e.ns.volume.Submit(&e.io)
		if e.chain.turn.CompareAndSwap(turnOpen, turnLate) {
			return // chained goes on
		}
	}
}

// chained is told that an operation completed. Whoever comes second, it or drive, goes on.
func (r *Request) chained() {
	if !r.engine.chain.turn.CompareAndSwap(turnOpen, turnDone) {
		r.drive()
	}
}
