package roce

import (
	"errors"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// run is the engine: it receives, lets the state machines and the handlers work, and sends
// what came of it, until the socket is closed. It blocks while there is nothing to do.
func (d *Device) run() {
	defer close(d.done)
	var n int
	var err error
	for backlog := false; ; {
		if backlog {
			n, err = d.conn.TryRecv(d.rx.received[:])
		} else {
			n, err = d.conn.Recv(d.rx.received[:])
		}
		if err != nil {
			d.broken(err)
			return
		}
		got := d.turnOver(d.rx.received[:n])
		for len(got) > 0 {
			got = d.turnOver(got)
		}
		d.mu.Lock()
		backlog = d.backlog()
		d.mu.Unlock()
	}
}

// turnBytes is how much is received before handlers are called and answers sent: the peer
// shall not wait for a whole window to be looked at.
const turnBytes = 256 << 10

// turnOver takes received datagrams, as many as make a turn, and finishes that, which it does
// without any too. It returns the others.
func (d *Device) turnOver(got []udp.Received) []udp.Received {
	d.mu.Lock()
	mine := d.takeTurn()
	d.mu.Unlock()
	now := d.now()
	for bytes := 0; bytes < turnBytes && len(got) > 0; got = got[1:] {
		d.receive(&got[0], now)
		bytes += len(got[0].Buf)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if mine || d.takeTurn() {
		d.finishTurn(1)
	}
	return got
}

// unbounded has transmit go on until nothing is ready.
const unbounded = -1

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

// finishTurn calls handlers and sends, until nothing is left to call. The device's lock is
// held, and given up during both.
func (d *Device) finishTurn(rounds int) {
	for {
		d.applyFaults()
		d.dispatch()
		d.transmit(rounds)
		if !d.hasCalls() && len(d.faults) == 0 {
			break
		}
	}
	d.turn = false
}

// backlog reports whether there is more to send that nobody is sending.
func (d *Device) backlog() bool {
	return !d.sending && (len(d.ready) > 0 || d.gsi.out.n > 0)
}

// postedOutside sends what was posted, unless it was posted during somebody's turn, who will.
// The device's lock is held, and given up while sending.
func (d *Device) postedOutside() {
	if d.turn {
		return
	}
	d.transmit(unbounded)
	if d.hasCalls() && !d.turn {
		// The caller may hold locks that its handlers take.
		d.kick()
	}
}

// sendAnswers sends what is due before a queue pair ends: a consumer may end it as soon as it
// sees the last message, before the acknowledgement of that has left, and nobody would answer
// when the peer asks again. The device's lock is held, and given up while sending.
func (d *Device) sendAnswers() {
	d.transmit(1)
	d.quiesce() // what another goroutine is sending may be it
}

// hasCalls reports whether handlers are to be called.
func (d *Device) hasCalls() bool {
	return len(d.fired) > 0 || len(d.events) > 0 || d.gsi.in.n > 0
}

// dispatch calls the handlers: of datagrams, of armed completion queues, of events, so that
// the completion that says what went wrong comes before the event that says that something
// did. The device's lock is held, but not during the calls.
func (d *Device) dispatch() {
	for d.hasCalls() {
		d.dispatchMADs()
		d.dispatchCQs()
		d.dispatchEvents()
	}
}

func (d *Device) dispatchEvents() {
	for len(d.events) > 0 {
		e := d.events[0]
		d.events = d.events[:copy(d.events, d.events[1:])]
		if e.q.freed {
			continue
		}
		d.mu.Unlock()
		e.q.init.EventHandler(verbs.AsyncEvent{Type: e.e, QP: e.q})
		d.mu.Lock()
	}
}

func (d *Device) dispatchCQs() {
	fired := d.fired
	d.fired = d.firedSpare[:0]
	for i, c := range fired {
		fired[i] = nil
		c.fired = false
		if c.freed {
			continue
		}
		d.mu.Unlock()
		c.handler(c)
		d.mu.Lock()
	}
	d.firedSpare = fired[:0]
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
