package target

import (
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// A controller becomes ready whatever commands its host has left behind on controllers that ended, and gets I/O queues
// whatever is left on its own that ended. But as long as a namespace's volume still has one of those commands, the
// controller's commands to that namespace are parked (gate): the host may have sent the same command again, and then
// written something else to the same blocks, which the late write would undo. So a volume that hangs keeps its host
// from one namespace, as it would anyway.

const (
	// firstLook is the pause before the first look whether commands have ended; it doubles each time. A notification
	// instead would cost every command something.
	firstLook = 10 * time.Millisecond
	// rarestLook is the longest pause. All hosts of a volume that hangs wait together.
	rarestLook = 200 * time.Millisecond
	// looksUntold is the number of looks, which take a second, after which the log says what is waited for. Hosts can't
	// find out, and volumes take less time unless they hang.
	looksUntold = 10
)

// looks calls a function again and again, as long as it asks for that.
type looks struct {
	timer *time.Timer // nil if none was needed yet
	n     int
}

// again schedules one more call of f, and reports whether that has gone on for so long that it should be logged.
func (l *looks) again(f func()) (late bool) {
	pause := min(firstLook<<min(l.n, looksUntold), rarestLook)
	if l.timer == nil {
		l.timer = time.AfterFunc(pause, f)
	} else {
		l.timer.Reset(pause)
	}
	l.n++
	return l.n == looksUntold
}

// leftovers are the commands that a host had sent on queues that had ended when its controller became ready, or got its
// latest I/O queue, and what the controller does about them.
type leftovers struct {
	queues []*Queue     // queues that have some
	held   []*Namespace // none of the controller's commands may go to them
	looks  looks
}

// leftBehind finds the queues on which the host of c left commands: those of ended controllers, and ended ones of c.
// Called with the mu of both held.
func (t *Target) leftBehind(c *controller) (all []*Queue) {
	for q := range t.queues {
		switch {
		case q.sq.Load() == 0: // not connected yet; q.ctrl belongs to Connect
		case q.ctrl.sub == c.sub && q.ctrl.host() == c.host() && q.endedFor(c) && q.reaching() > 0:
			all = append(all, q)
		}
	}
	return all
}

// endedFor is ended, for a caller that holds the mu of c.
func (q *Queue) endedFor(c *controller) bool {
	if q.ctrl == c {
		return q.state.Load() == queueDown
	}
	return q.ended()
}

// hold keeps the commands of a controller, which is about to be ready or to get an I/O queue, away from what is left on
// queues. Called with mu held; lookBehind must follow, as it may be over already.
func (c *controller) hold(left []*Queue) {
	if len(left) == 0 {
		return
	}
	l := &c.left
	l.queues, l.looks.n = left, 0
	for _, ns := range c.sub.all() {
		if !slices.Contains(l.held, ns) {
			l.held = append(l.held, ns)
			ns.gate.hold(ns, c)
		}
	}
}

// holdLeft keeps the commands of an I/O queue that is about to be connected, and of its controller's others, away from
// what is left.
func (c *controller) holdLeft() {
	c.t.mu.Lock()
	c.mu.Lock()
	if !c.dead {
		c.hold(c.t.leftBehind(c))
	}
	c.mu.Unlock()
	c.t.mu.Unlock()
	c.lookBehind()
}

// unhold forgets what was left, for a controller whose parked commands end with their connections. Called with mu held.
func (c *controller) unhold() {
	for _, ns := range c.left.held {
		ns.gate.unhold(ns, c)
	}
	c.left.queues, c.left.held = nil, nil
}

// lookBehind lets commands go on to namespaces where nothing is left any more.
func (c *controller) lookBehind() {
	c.mu.Lock()
	l := &c.left
	free := l.free()
	for _, ns := range free {
		ns.gate.unhold(ns, c)
	}
	queues, held := l.queues, nsids(l.held)
	late := len(queues) > 0 && l.looks.again(c.lookBehind)
	c.mu.Unlock()
	for _, ns := range free {
		ns.letIn()
	}
	if late && len(held) > 0 {
		c.tellLeft("commands of a host wait: others", queues, held)
	}
}

// free removes and returns the namespaces that needn't be held any more, as nothing is left there. If it isn't clear
// where all leftover commands are, it removes none.
func (l *leftovers) free() (free []*Namespace) {
	at, left, sure := whereabouts(l.queues)
	l.queues = left
	if !sure {
		return nil
	}
	l.held = slices.DeleteFunc(l.held, func(ns *Namespace) bool {
		if !at.has(ns.nsid) {
			free = append(free, ns)
		}
		return !at.has(ns.nsid)
	})
	return free
}

// whereabouts returns the namespaces whose volumes have commands that are left on the queues, where no more commands
// begin, and the queues that have any. It isn't sure if some commands are on their way to a volume, or from it: those
// may be for any namespace.
func whereabouts(queues []*Queue) (at nsSet, left []*Queue, sure bool) {
	sure = true
	for _, q := range queues {
		n := q.reaching() // first: there won't be more
		if n == 0 {
			continue
		}
		left = append(left, q)
		q.stop.Lock()
		for _, r := range q.requests {
			if nsid := r.engine.at.Load(); nsid != 0 {
				at.set(nsid, true)
				n--
			}
		}
		q.stop.Unlock()
		sure = sure && n <= 0
	}
	return at, left, sure
}

// toVolume passes e.io to the volume, and notes that it has it, except if the operation only copies memory, which is
// over at once: there the note would cost a twentieth more. Nothing of the request may be touched afterwards.
func (r *Request) toVolume() {
	e := &r.engine
	if e.ns.memory == nil || e.io.FUA || e.io.Op == blockdev.OpFlush {
		e.at.Store(e.ns.nsid)
	}
	e.ns.volume.Submit(&e.io)
}

// tellLeft logs the commands that a controller, or its commands, wait for, and which namespaces that concerns.
func (c *controller) tellLeft(what string, queues []*Queue, namespaces []uint32) {
	commands := 0
	for _, q := range queues {
		commands += q.reaching()
	}
	if commands > 0 {
		c.t.log.Warn(what+" that its host sent before are still with a volume", c.identity("commands", commands,
			"namespaces", namespaces, "remedy", "see to the volume that hangs; the host waits until it answers")...)
	}
}

func nsids(all []*Namespace) []uint32 {
	ids := make([]uint32, len(all))
	for i, ns := range all {
		ids[i] = ns.nsid
	}
	return ids
}

// hold makes the gate park the commands of a controller.
func (g *gate) hold(ns *Namespace, c *controller) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = append(g.held, c)
	ns.state.Or(nsHeld)
}

// unhold ends that. letIn follows, unless the parked commands end with their connection.
func (g *gate) unhold(ns *Namespace, c *controller) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = slices.DeleteFunc(g.held, func(h *controller) bool { return h == c })
	if len(g.held) == 0 {
		ns.state.And(^nsHeld)
	}
}

// holds reports whether the commands of a controller are to be parked.
func (g *gate) holds(c *controller) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.held, c)
}

// letIn continues the parked commands that aren't held any more, or whose namespace is gone. Those that wait for an owner
// next lets in.
func (ns *Namespace) letIn() {
	for _, r := range ns.gate.unpark(ns.passes) {
		r.unparked()
	}
}
