package roce

import (
	"errors"
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// start starts the engine. Where the socket lets it, it does what others offer while no packets come.
func (d *Device) start() {
	if c, ok := d.conn.(udp.Attended); ok {
		d.attendant = duty.NewAttendant(func() { go d.run() })
		c.Attend(d.attendant)
	} else {
		duty.AddReceiver()
	}
	go d.run()
}

// run is the engine: it receives, lets the state machines and the handlers work, and sends what
// came of it, until the socket is closed, or another goroutine has become the engine. It blocks
// while there is nothing to do.
func (d *Device) run() {
	for d.attendant == nil || d.attendant.Work() {
		n, err := d.receiveMore()
		if err != nil {
			d.end(err)
			return
		}
		got := d.turnOver(d.rx.received[:n])
		for len(got) > 0 {
			got = d.turnOver(got)
		}
	}
}

// receiveMore receives. It doesn't wait while there is more to send.
func (d *Device) receiveMore() (int, error) {
	d.mu.Lock()
	backlog := d.backlog()
	d.mu.Unlock()
	if backlog {
		return d.conn.TryRecv(d.rx.received[:])
	}
	return d.conn.Recv(d.rx.received[:])
}

// end ends the engine, since the socket fails.
func (d *Device) end(err error) {
	d.broken(err)
	if d.attendant != nil {
		d.attendant.Leave()
		d.attendant.Close()
	} else {
		duty.RemoveReceiver()
	}
	close(d.done)
}

// turnBytes is how much is received before handlers are called and answers sent: the peer
// shall not wait for a whole window to be looked at.
const turnBytes = 256 << 10

const (
	// standstill is how long the engine hasn't begun a turn when it catches up.
	standstill = 100 * time.Millisecond
	// catchUpBytes is more than a socket holds, and bounds what a peer that floods can have the engine take.
	catchUpBytes = 16 << 20
)

// turnOver takes received datagrams, as many as make a turn, and finishes that, which it does
// without any too. It returns the others.
func (d *Device) turnOver(got []udp.Received) []udp.Received {
	now := d.now()
	late := now-d.rx.turned > standstill
	d.rx.turned = now
	d.mu.Lock()
	for late && d.turn { // the timer's, which was late too, and would call handlers of what is received too soon
		d.over.Wait()
	}
	mine := d.takeTurn()
	d.mu.Unlock()
	if late {
		d.catchUp(got, now)
		got = nil
	}
	for bytes := 0; bytes < turnBytes && len(got) > 0; got = got[1:] {
		d.receive(&got[0], now)
		bytes += len(got[0].Buf)
	}
	if mine && d.now()-now > standstill { // just now
		d.catchUp(got, now)
		got = nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if mine || d.takeTurn() {
		d.finishTurn(1)
	}
	return got
}

// catchUp takes got, which may be nothing, and all else that has come, where the engine may have stood still, with its
// program or the machine. A peer may have given up meanwhile, and have told that behind what it wants done: it may have
// had the same done elsewhere, and other things after that. So connection management hears of it before the handlers
// are called. The caller has the turn.
func (d *Device) catchUp(got []udp.Received, now time.Duration) {
	for bytes := 0; bytes < catchUpBytes; {
		for i := range got {
			d.receive(&got[i], now)
			bytes += len(got[i].Buf)
		}
		n, err := d.conn.TryRecv(d.rx.received[:])
		if n == 0 || err != nil { // the next receive call says it too
			break
		}
		got, now = d.rx.received[:n], d.now()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	settle := d.gsi.settle
	if d.gsi.in.n == 0 || len(d.calls) == 0 || settle == nil {
		return
	}
	d.dispatchMADs()
	d.mu.Unlock()
	settle()
	d.mu.Lock()
}

// unbounded has transmit go on until nothing is ready, which peers may see to that it never is.
const unbounded = -1

// roundsOfOthers is how many batches a goroutine sends at most that isn't the engine: it has something else
// to do, perhaps for others.
const roundsOfOthers = 8

// takeTurn makes the caller the one who calls handlers and then sends, unless somebody is:
// that one looks again before the turn ends. While a turn lasts, posting only queues. The
// device's lock is held.
func (d *Device) takeTurn() bool {
	if d.turn {
		return false
	}
	d.turn = true
	return true
}

// finishTurn calls handlers and sends by turns, until nothing is left to call. The device's lock is
// held, and given up during both.
func (d *Device) finishTurn(rounds int) {
	for {
		d.applyFaults()
		d.dispatch()
		d.acksDue()
		d.posts = 0
		d.transmit(rounds)
		if !d.hasCalls() && len(d.faults) == 0 {
			break
		}
	}
	d.turn = false
	d.over.Broadcast()
}

// backlog reports whether there is more to send that nobody is sending.
func (d *Device) backlog() bool {
	return !d.sending && (len(d.ready) > 0 || d.gsi.out.n > 0)
}

// posted sends what was posted, or leaves it to whose turn it is. During a turn it sends what many posts have
// left: the peer works on that while the rest of what has come is dealt with. The device's lock is held, and given
// up while sending.
func (d *Device) posted() {
	if !d.turn {
		d.postedOutside()
		return
	}
	if d.posts++; d.posts == callsAtOnce {
		d.posts = 0
		d.transmit(1)
	}
}

// postedOutside sends what was posted, unless it was posted during somebody's turn, who will.
// The device's lock is held, and given up while sending.
func (d *Device) postedOutside() {
	if d.turn {
		return
	}
	d.transmit(roundsOfOthers)
	if d.hasCalls() && !d.turn {
		// The caller may hold locks that its handlers take.
		d.kick()
	}
}

// sendAnswers sends what queue pairs have to answer before they end: a consumer may end one as soon as
// it sees the last message, before the acknowledgement of that has left, and nobody would answer
// when the peer asks again. Those pass everybody in the line, and each has one turn, in which an answer of
// many packets needn't end. The device's lock is held, and given up while sending.
func (d *Device) sendAnswers(ending ...*qp) {
	for _, q := range ending {
		d.hurry(q)
	}
	for slices.ContainsFunc(ending, (*qp).hurries) {
		if d.sending {
			d.sent.Wait() // the batch in flight may be from before
		} else {
			d.transmit(1)
		}
	}
	d.quiesce() // what another goroutine is sending may be it
}

// call is one of a handler: that of an armed completion queue, or, where cq is nil, that of qp's events.
type call struct {
	cq    *cq
	qp    *qp
	event verbs.AsyncEventType
}

// hasCalls reports whether handlers are to be called.
func (d *Device) hasCalls() bool {
	return len(d.calls) > 0 || d.gsi.in.n > 0
}

// dispatch calls handlers: of the datagrams that are here, and of some armed completion queues and
// events, in the order in which they arose. So nothing waits for what keeps coming, and the
// completion that says what went wrong comes before the event that says that something did. The
// device's lock is held, but not during the calls.
func (d *Device) dispatch() {
	d.dispatchMADs()
	d.dispatchCalls()
}

// callsAtOnce is how many handlers of completion queues and events are called before what came of it is sent:
// where there are many, the peer works on the one part while the other is dealt with.
const callsAtOnce = 32

func (d *Device) dispatchCalls() {
	n := min(len(d.calls), callsAtOnce)
	for i := range n {
		if c := d.calls[i]; c.cq != nil {
			d.callCQ(c.cq)
		} else {
			d.callEvent(c.qp, c.event)
		}
	}
	d.calls = slices.Delete(d.calls, 0, n) // meanwhile others have only added
}

func (d *Device) callCQ(c *cq) {
	c.fired = false
	if !c.freed {
		c.called = true
		d.mu.Unlock()
		c.handler(c)
		d.mu.Lock()
		c.called = false
	}
}

func (d *Device) callEvent(q *qp, e verbs.AsyncEventType) {
	if !q.freed {
		d.mu.Unlock()
		q.init.EventHandler(verbs.AsyncEvent{Type: e, QP: q})
		d.mu.Lock()
	}
}

// broken ends the device's work because the socket fails; where it was closed, nothing is
// left to end.
func (d *Device) broken(err error) {
	if errors.Is(err, udp.ErrClosed) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.qps.all {
		if q.attr.State != verbs.Reset {
			q.toError(verbs.WCFatalErr, verbs.EventQPFatal)
		}
	}
	if d.takeTurn() {
		d.finishTurn(unbounded)
	}
}
