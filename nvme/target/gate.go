package target

import (
	"slices"
	"sync"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// What keeps commands from a namespace, as bits of Namespace.state. The path of a read or
// write looks at all of them at once, and goes on where none is set.
const (
	nsRemoved  uint32 = 1 << iota // gone, or going
	nsClosed                      // somebody has the namespace alone, or waits for that
	nsDamaged                     // blocks are marked uncorrectable
	nsReserved                    // a host, or all registrants, hold a reservation
	nsBarred                      // its ANA group can't be reached through some port
	nsSanitize                    // a sanitize operation runs, or failed
	nsHeld                        // a host has left commands there, and those that it sends now wait
)

// gate gives a namespace to one operation alone: a fused Compare and Write, say. Commands that
// come meanwhile are parked, and executed from their beginning afterwards, before the next such operation.
type gate struct {
	mu      sync.Mutex
	owners  []owner // in the order in which they came; the first has its turn
	running bool    // the first has been called, or those that were parked are being let in
	parked  []*Request
	held    []*controller // their commands are parked (hold.go)
}

// owner is who has a namespace alone, or waits for that.
type owner struct {
	r   *Request // whose it is; the Write of a fused pair; nil: no command's
	run func()
}

// namespace finds the namespace of the command and counts the request in it. It returns false
// where the command can't go on now: it has been responded to, or is parked.
func (r *Request) namespace() bool {
	e := &r.engine
	ns := e.q.ctrl.namespace(r.Cmd.NSID())
	if ns == nil {
		r.fail(nvme.StatusInvalidNamespace, offNSID)
		return false
	}
	ns.shards[e.q.shard].users.Add(1)
	e.ns = ns
	if s := ns.state.Load(); s != 0 {
		return r.admit(s)
	}
	return true
}

// admit is namespace where something is special about the namespace.
func (r *Request) admit(s uint32) bool {
	e := &r.engine
	ns, q := e.ns, e.q
	if s&(nsRemoved|nsSanitize) == nsSanitize {
		// It doesn't wait for the sanitize operation, which has the namespace alone.
		if st := ns.sub.sanitizing(); !st.OK() {
			r.respond(st)
			return false
		}
	}
	closed := s&nsClosed != 0 && !e.turn || s&nsHeld != 0 && ns.gate.holds(q.ctrl)
	if s&nsRemoved == 0 && !closed {
		e.turn = false
		return r.allowed(s)
	}
	e.ns, e.turn = nil, false
	ns.put(q.shard)
	switch {
	case s&nsRemoved != 0:
		r.fail(nvme.StatusInvalidNamespace, offNSID)
		return false
	case ns.gate.park(ns, r):
		q.leave(ns)
		return false
	}
	return r.namespace() // it has been opened meanwhile
}

// allowed says whether the host may do what the command wants. It responds and returns false
// where it may not.
func (r *Request) allowed(s uint32) bool {
	st := r.permission(s)
	if !st.OK() {
		r.respond(st)
	}
	return st.OK()
}

// permission is success where the host may do what the command wants.
func (r *Request) permission(s uint32) nvme.Status {
	e := &r.engine
	if s&nsSanitize != 0 {
		if st := e.ns.sub.sanitizing(); !st.OK() {
			return st
		}
	}
	if s&nsBarred != 0 {
		if st := e.q.ctrl.access(e.ns); !st.OK() {
			return st
		}
	}
	if s&nsReserved != 0 {
		if st := r.reservationStatus(); !st.OK() {
			return st
		}
	}
	if s&nsDamaged != 0 {
		switch r.Cmd.Opcode() {
		case nvme.OpRead, nvme.OpCompare, nvme.OpVerify:
			return r.readable(r.commandRange())
		}
	}
	return nvme.StatusSuccess
}

// park keeps r until the namespace is opened, for its controller too; false where it is open, or gone.
func (g *gate) park(ns *Namespace, r *Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := ns.state.Load(); s&nsRemoved != 0 || s&nsClosed == 0 && !slices.Contains(g.held, r.engine.q.ctrl) {
		return false
	}
	g.parked = append(g.parked, r)
	return true
}

// unpark takes the command cid of a queue out of those that are parked; nil where it isn't.
func (g *gate) unpark(q *Queue, cid uint16) *Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, r := range g.parked {
		if r.engine.q == q && r.Cmd.CID() == cid {
			g.parked = append(g.parked[:i], g.parked[i+1:]...)
			return r
		}
	}
	return nil
}

// unparkAll takes all commands of a queue out of those that are parked.
func (g *gate) unparkAll(q *Queue) (out []*Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unparkIf(func(r *Request) bool { return r.engine.q == q })
}

// unparkIf takes the commands that match out of those that are parked. Called with mu held.
func (g *gate) unparkIf(match func(*Request) bool) (out []*Request) {
	g.parked = slices.DeleteFunc(g.parked, func(r *Request) bool {
		mine := match(r)
		if mine {
			out = append(out, r)
		}
		return mine
	})
	return out
}

// exclude calls run when nothing but run uses the namespace, perhaps before it returns. include
// follows, when run's work is done. Where it is for r, which doesn't use the namespace meanwhile, run isn't
// called any more when the connection of r has ended.
func (ns *Namespace) exclude(r *Request, run func()) {
	var q *Queue
	if r != nil {
		q = r.engine.q
	}
	g := &ns.gate
	g.mu.Lock()
	g.owners = append(g.owners, owner{r, run})
	ns.state.Or(nsClosed)
	g.mu.Unlock()
	ns.quiet()
	if ns.state.Load()&nsRemoved != 0 {
		ns.turnAway()
	}
	if q != nil {
		q.leave(ns)
	}
}

// quiet looks whether the namespace is unused, and whose turn it then is.
func (ns *Namespace) quiet() {
	g := &ns.gate
	g.mu.Lock()
	if g.running || len(g.owners) == 0 || ns.users() != 0 {
		g.mu.Unlock()
		return
	}
	g.running = true
	run := g.owners[0].run
	g.mu.Unlock()
	run()
}

// include ends what exclude began.
func (ns *Namespace) include() {
	g := &ns.gate
	g.mu.Lock()
	g.owners[0] = owner{}
	g.owners, g.running = g.owners[1:], false
	ns.next()
}

// next lets in what was parked, and gives the next owner its turn, or opens the namespace where there is none.
// Called with the gate's mu held, which it gives up.
func (ns *Namespace) next() {
	g := &ns.gate
	parked := g.parked
	g.parked = nil
	more := len(g.owners) > 0
	if more {
		g.running = true // nobody begins before them
	} else {
		g.owners = nil
		ns.state.And(^nsClosed)
	}
	g.mu.Unlock()
	for _, r := range parked {
		r.engine.turn = more
		r.unparked()
	}
	if !more {
		ns.tellDrained()
		return
	}
	g.mu.Lock()
	g.running = false
	g.mu.Unlock()
	ns.quiet()
}

// withdraw takes commands out of those that wait to have the namespace alone. Those that are parked go on only where
// it was the first whose turn they waited for, lest that waits longer for each that comes and goes behind it.
func (ns *Namespace) withdraw(match func(*Request) bool) (out []*Request) {
	g := &ns.gate
	g.mu.Lock()
	var first *Request
	if len(g.owners) > 0 {
		first = g.owners[0].r
	}
	kept := g.owners[:0]
	for i, o := range g.owners {
		if i == 0 && g.running || o.r == nil || !match(o.r) { // what runs may have been answered
			kept = append(kept, o)
		} else {
			out = append(out, o.r)
		}
	}
	clear(g.owners[len(kept):])
	g.owners = kept
	if len(out) == 0 || out[0] != first {
		g.mu.Unlock()
	} else {
		ns.next()
	}
	return out
}

// leave gives back what waits for a namespace, where the connection has ended. It may wait for long, and
// connections that are gone would take the places of others meanwhile.
func (q *Queue) leave(ns *Namespace) {
	if q.state.Load() != queueDown {
		return
	}
	mine := func(r *Request) bool { return r.engine.q == q }
	endWaiting(append(ns.gate.unparkAll(q), ns.withdraw(mine)...), nvme.StatusAbortSQDeleted)
}

// turnAway ends what waits to have a namespace alone that is gone: what that waits for may take long, and a connection
// that ends doesn't find it there any more.
func (ns *Namespace) turnAway() {
	endWaiting(ns.withdraw(func(*Request) bool { return true }), nvme.StatusInvalidNamespace|nvme.StatusDNR)
}

// endWaiting responds to commands that only waited for a namespace, pairs with both halves.
func endWaiting(all []*Request, st nvme.Status) {
	for _, r := range all {
		if r.engine.mate != nil {
			r.endCompare(st)
		}
		r.respond(st)
	}
}

// unparked executes a command that was parked.
func (r *Request) unparked() {
	if r.engine.q.state.Load() == queueDown {
		r.respond(nvme.StatusAbortSQDeleted)
		return
	}
	if r.engine.q.ctrl.ended() {
		r.notReady()
		return
	}
	r.io()
}

// excluded says whether somebody has the namespace alone, or waits for that.
func (ns *Namespace) excluded() bool {
	ns.gate.mu.Lock()
	defer ns.gate.mu.Unlock()
	return len(ns.gate.owners) > 0
}
