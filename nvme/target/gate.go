package target

import (
	"slices"
	"sync"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// What keeps commands from a namespace, as bits of Namespace.state. The path of a read or write checks all of them at
// once, and goes on if none is set.
const (
	nsRemoved  uint32 = 1 << iota // gone, or going
	nsClosed                      // an owner has the namespace alone, or waits for that
	nsDamaged                     // blocks are marked uncorrectable
	nsReserved                    // a host, or all registrants, hold a reservation
	nsBarred                      // its ANA group can't be reached through some port
	nsSanitize                    // a sanitize operation runs, or failed
	nsHeld                        // a host has left commands there, and its new ones wait
)

// setState sets or clears a bit of the state.
func (ns *Namespace) setState(bit uint32, on bool) {
	if on {
		ns.state.Or(bit)
	} else {
		ns.state.And(^bit)
	}
}

// gate gives a namespace to one operation alone: a fused Compare and Write, for example. Commands that arrive meanwhile
// are parked, and executed from their beginning afterwards, before the next such operation.
type gate struct {
	mu      sync.Mutex
	owners  []owner // in order of arrival; the first has its turn
	running bool    // the first has been called, or the parked commands are being let in
	parked  []*Request
	held    []*controller // their commands are parked (hold.go)
}

// owner has a namespace alone, or waits for that.
type owner struct {
	r   *Request // its command; of a fused pair, the Write; nil: belongs to no command
	run func()
}

// namespace finds the namespace of the command and counts the request in it. It returns false if the command can't go
// on now: it has been responded to, or is parked.
func (r *Request) namespace() bool {
	e := &r.engine
	ns := e.q.ctrl.namespace(r.Cmd.NSID())
	if ns == nil {
		r.failNSID()
		return false
	}
	ns.shards[e.q.shard].users.Add(1)
	e.ns = ns
	if s := ns.state.Load(); s != 0 {
		return r.admit(s)
	}
	return true
}

// failNSID responds to a command whose NSID isn't that of a namespace that the controller has. All namespaces is not an
// invalid NSID, but a value that the command doesn't support (NVMe base, figure "Common Command Format").
func (r *Request) failNSID() {
	if r.Cmd.NSID() == nvme.NSIDAll {
		r.fail(nvme.StatusInvalidField, offNSID)
		return
	}
	r.fail(nvme.StatusInvalidNamespace, offNSID)
}

// admit is the rest of namespace, if any bit of its state is set.
func (r *Request) admit(s uint32) bool {
	e := &r.engine
	ns, q := e.ns, e.q
	if s&(nsRemoved|nsSanitize) == nsSanitize {
		// The command doesn't wait for the sanitize operation, which has the namespace alone.
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
	e.turn = false
	r.unuse()
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

// use counts r as a user of a namespace, whatever owner has that alone. It returns false if the namespace is gone, or not
// attached.
func (r *Request) use(ns *Namespace) bool {
	e := &r.engine
	if ns == nil || e.q.ctrl.namespace(ns.nsid) != ns || !ns.get(e.q.shard) {
		return false
	}
	e.ns = ns
	return true
}

// unuse ends that before the command is answered.
func (r *Request) unuse() {
	e := &r.engine
	ns := e.ns
	e.ns = nil
	ns.put(e.q.shard)
}

// allowed reports whether the host may do what the command wants. If it may not, allowed responds.
func (r *Request) allowed(s uint32) bool {
	st := r.permission(s)
	if !st.OK() {
		r.respond(st)
	}
	return st.OK()
}

// permission returns success if the host may do what the command wants, or the status to respond with.
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
	if s&nsDamaged != 0 && e.ns.covers(&r.Cmd) { // a range beyond the end is an error of its own
		switch r.Cmd.Opcode() {
		case nvme.OpRead, nvme.OpCompare, nvme.OpVerify:
			return r.readable(r.commandRange())
		}
	}
	return nvme.StatusSuccess
}

// park keeps r until the namespace is opened, for its controller too; it returns false if it is open, or gone.
func (g *gate) park(ns *Namespace, r *Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ns.passes(r) {
		return false
	}
	g.parked = append(g.parked, r)
	return true
}

// passes reports whether r needn't be parked, or not any more. Called with the gate's mu held.
func (ns *Namespace) passes(r *Request) bool {
	s := ns.state.Load()
	return s&nsRemoved != 0 || s&nsClosed == 0 && !slices.Contains(ns.gate.held, r.engine.q.ctrl)
}

// unpark removes the commands that match from the parked commands.
func (g *gate) unpark(match func(*Request) bool) (out []*Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parked = slices.DeleteFunc(g.parked, func(r *Request) bool {
		mine := match(r)
		if mine {
			out = append(out, r)
		}
		return mine
	})
	return out
}

// has reports whether a command came on the queue.
func (q *Queue) has(r *Request) bool { return r.engine.q == q }

// exclude calls run, perhaps before it returns, when nothing but run uses the namespace. include must follow when run's
// work is done. If r isn't nil, run is on behalf of r, which must not use the namespace meanwhile; then run isn't
// called once the connection of r has ended.
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
	ns.quiet(false)
	if ns.state.Load()&nsRemoved != 0 {
		ns.turnAway()
	}
	if q != nil {
		q.leave(ns)
	}
}

// quiet gives the first owner its turn if the namespace is unused. waited says that the owner hasn't just come.
func (ns *Namespace) quiet(waited bool) {
	g := &ns.gate
	g.mu.Lock()
	if g.running || len(g.owners) == 0 || ns.users() != 0 {
		g.mu.Unlock()
		return
	}
	g.running = true
	first := g.owners[0]
	if first.r != nil && (waited || len(g.owners) > 1) {
		first.r.engine.waited = true
	}
	g.mu.Unlock()
	first.run()
}

// include ends what exclude began.
func (ns *Namespace) include() {
	g := &ns.gate
	g.mu.Lock()
	g.owners[0] = owner{}
	g.owners, g.running = g.owners[1:], false
	ns.next()
}

// next lets in the parked commands, and gives the next owner its turn, or opens the namespace if there is none. Called
// with the gate's mu held, which it releases.
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
	ns.quiet(true)
}

// withdraw removes commands from those that wait to have the namespace alone. Parked commands go on only if they waited
// for the first owner's turn and it was removed: otherwise the first owner would wait longer for each one that comes
// and goes behind it.
func (ns *Namespace) withdraw(match func(*Request) bool) (out []*Request) {
	g := &ns.gate
	g.mu.Lock()
	first := false // was removed
	kept := g.owners[:0]
	for i, o := range g.owners {
		if i == 0 && g.running || o.r == nil || !match(o.r) { // a running one may have been answered
			kept = append(kept, o)
		} else {
			out = append(out, o.r)
			first = first || i == 0
		}
	}
	clear(g.owners[len(kept):])
	g.owners = kept
	if first {
		ns.next()
	} else {
		g.mu.Unlock()
	}
	return out
}

// leave gives back the commands that wait for a namespace, if their connection has ended. They may wait for long, and
// connections that are gone would take the places of others meanwhile.
func (q *Queue) leave(ns *Namespace) {
	if q.state.Load() != queueDown {
		return
	}
	endWaiting(append(ns.gate.unpark(q.has), ns.withdraw(q.has)...), nvme.StatusAbortSQDeleted)
}

// turnAway ends the commands that wait to have alone a namespace that is gone: what they wait for may take long, and a
// connection that ends doesn't find them there any more.
func (ns *Namespace) turnAway() {
	endWaiting(ns.withdraw(func(*Request) bool { return true }), nvme.StatusInvalidNamespace|nvme.StatusDNR)
}

// endWaiting responds to commands that only waited for a namespace, for a fused pair to both halves.
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
	if !r.postponed((*Request).unparked) {
		r.io()
	}
}

// excluded reports whether an owner has the namespace alone, or waits for that.
func (ns *Namespace) excluded() bool {
	ns.gate.mu.Lock()
	defer ns.gate.mu.Unlock()
	return len(ns.gate.owners) > 0
}
