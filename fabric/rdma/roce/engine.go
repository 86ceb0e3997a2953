package roce

import (
	"errors"
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// start starts the engine. If the socket allows it, the engine does tasks that others offer while no packets arrive.
func (d *Device) start() {
	if c, ok := d.conn.(udp.Attended); ok {
		d.attendant = duty.NewAttendant(func() { go d.run() })
		c.Attend(d.attendant)
	} else {
		duty.AddReceiver()
	}
	go d.run()
}

// run is the engine: it receives, runs the state machines and the handlers, and sends the results, until the socket is
// closed, or another goroutine has become the engine. It blocks while there is nothing to do.
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

// receiveMore receives. It doesn't wait while there is more to send, unless another goroutine has the turn, and so will
// send it.
func (d *Device) receiveMore() (int, error) {
	d.mu.Lock()
	backlog := d.backlog() && !d.turn
	d.mu.Unlock()
	if backlog {
		return d.conn.TryRecv(d.rx.received[:])
	}
	return d.conn.Recv(d.rx.received[:])
}

// end ends the engine, because the socket failed.
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

// turnBytes is how much is received before handlers are called and answers sent: the peer should not have to wait until
// a whole window is processed.
const turnBytes = 256 << 10

const (
	// standstill is the time without a turn after which the engine catches up.
	standstill = 100 * time.Millisecond
	// catchUpBytes is more than a socket holds, and limits how much a flooding peer can make the engine receive.
	catchUpBytes = 16 << 20
)

// turnOver handles received datagrams, as many as make a turn, and finishes the turn, even if there are none. It
// returns the rest.
func (d *Device) turnOver(got []udp.Received) []udp.Received {
	now := d.now()
	d.mu.Lock()
	late := now-d.rx.turned > standstill
	for late && d.turn { // the turn of the timer, which was late too, and would call handlers for what is received too soon
		d.over.Wait()
	}
	d.rx.turned = now
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
	d.keptUntil = min(d.keptUntil, now) // our own socket has been looked at
	if mine || d.takeTurn() {
		d.finishTurn(1)
	}
	return got
}

// catchUp handles got, which may be empty, and everything else that has arrived, if the engine may have stood still,
// with its program or the machine. A peer may have given up in the meantime, and have said so after its requests: it
// may have had the same work done elsewhere, and other work after that. So connection management is told before the
// handlers are called. The caller has the turn.
func (d *Device) catchUp(got []udp.Received, now time.Duration) {
	d.rx.late = true
	defer func() {
		d.rx.late = false
		d.releaseSiblings()
	}()
	for bytes := 0; bytes < catchUpBytes; {
		for i := range got {
			d.receive(&got[i], now)
			bytes += len(got[i].Buf)
		}
		n, err := d.conn.TryRecv(d.rx.received[:])
		if n == 0 || err != nil { // the next receive call returns the error too
			break
		}
		got, now = d.rx.received[:n], d.now()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settleMADs()
}

// settleMADs tells connection management of the datagrams that are waiting, if handlers are to be called behind them,
// and waits until those have taken effect. The device's lock is held, and released meanwhile; the caller has the turn.
func (d *Device) settleMADs() {
	settle := d.gsi.settle
	if d.gsi.in.n == 0 || len(d.calls) == 0 || settle == nil {
		return
	}
	d.dispatchMADs()
	d.mu.Unlock()
	settle()
	d.mu.Lock()
}

// roundsOfOthers is the maximum number of batches that a goroutine other than the engine sends: it has something else
// to do, perhaps for others.
const roundsOfOthers = 8

// takeTurn makes the caller the goroutine that calls handlers and then sends, unless there already is one: that one
// checks again before its turn ends. During a turn, posting only queues. The device's lock is held.
func (d *Device) takeTurn() bool {
	if d.turn {
		return false
	}
	d.turn = true
	return true
}

// finishTurn alternates between calling handlers and sending, until there is nothing left to call. The device's lock is
// held, and released during both.
func (d *Device) finishTurn(rounds int) {
	for d.callAndSend(rounds) {
	}
	d.endTurn()
}

// callAndSend is one round of a turn. It reports whether there is more to call.
func (d *Device) callAndSend(rounds int) (more bool) {
	d.applyFaults()
	d.dispatch()
	d.acksDue()
	d.posts = 0
	d.transmit(rounds)
	return (d.hasCalls() || len(d.faults) > 0) && !d.keepsCalls()
}

func (d *Device) endTurn() {
	d.turn = false
	d.over.Broadcast()
}

// turnOutside takes and finishes a turn, unless another goroutine has it, for one that isn't the engine. The device's
// lock is held, and released meanwhile.
func (d *Device) turnOutside() {
	if !d.takeTurn() {
		return
	}
	d.finishTurn(roundsOfOthers)
	if d.backlog() {
		d.kick()
	}
}

// turnInPassing is turnOutside for a goroutine that has other packets to receive: it takes one round only. What comes
// meanwhile, which may never end, is left to the goroutine of the timer.
func (d *Device) turnInPassing() {
	if !d.takeTurn() {
		return
	}
	more := d.callAndSend(roundsOfOthers)
	d.endTurn()
	if more || d.backlog() {
		d.kick()
	}
}

// backlog reports whether there is more to send that nobody is sending.
func (d *Device) backlog() bool {
	return !d.sending && (len(d.ready) > 0 || d.gsi.out.n > 0)
}

// posted sends what was posted, or leaves it to the goroutine that has the turn. During a turn, it sends what many
// posts have accumulated: the peer works on that while the rest of what has arrived is handled. The device's lock is
// held, and released while sending.
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

// postedOutside sends what was posted, and has handlers called, unless that happened during another goroutine's turn,
// which will do both. The device's lock is held, and released while sending.
func (d *Device) postedOutside() {
	if !d.turn {
		d.transmit(roundsOfOthers)
	}
}

// sendAnswers sends the answers that queue pairs owe before they end: a consumer may end one as soon as it sees the
// last message, before its acknowledgement has been sent, and nobody would answer when the peer asks again. These queue
// pairs go to the front of the line, and each gets one turn, which may be too short for an answer of many packets. The
// device's lock is held, and released while sending.
func (d *Device) sendAnswers(ending ...*qp) {
	for _, q := range ending {
		d.hurry(q)
	}
	for slices.ContainsFunc(ending, (*qp).hurries) {
		if d.sending {
			d.sent.Wait() // the batch in flight may have been built before
		} else {
			d.transmit(1)
		}
	}
	d.quiesce() // another goroutine may be sending the answers
}

// call is a pending call of a handler: that of an armed completion queue or, if cq is nil, that of qp's events.
type call struct {
	cq    *cq
	qp    *qp
	event verbs.AsyncEventType
}

// hasCalls reports whether handlers have to be called.
func (d *Device) hasCalls() bool {
	return len(d.calls) > 0 || d.gsi.in.n > 0
}

// dispatch calls handlers: those of the datagrams that are here, and of some armed completion queues and events, in the
// order in which they arose. So nothing has to wait for something that keeps coming, and the completion that says what
// went wrong comes before the event that says that something did. The device's lock is held, but not during the calls.
func (d *Device) dispatch() {
	if d.keepsCalls() {
		return
	}
	d.settleKept()
	d.dispatchMADs()
	n := min(len(d.calls), callsAtOnce)
	for i := range n {
		if c := d.calls[i]; c.cq != nil {
			d.callCQ(c.cq)
		} else {
			d.callEvent(c.qp, c.event)
		}
	}
	d.calls = slices.Delete(d.calls, 0, n) // others have only added entries meanwhile
}

// callsAtOnce is how many handlers of completion queues and events are called before the results are sent: if there are
// many, the peer works on one part while the next is handled.
const callsAtOnce = 32

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

// broken ends the device's work because the socket fails; if the socket was closed, nothing is left to end.
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
	d.turnOutside()
}
