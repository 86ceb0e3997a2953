package target

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/crowd"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Queue is the engine's half of one NVMe queue pair: one transport connection.
type Queue struct {
	t    *Target
	conn Conn
	attr ConnAttr

	state atomic.Uint32 // queueNew …
	auth  atomic.Pointer[queueAuth]
	timer *time.Timer // until Connect

	ends atomic.Int32 // how many of Closing and Closed have done what they do
	lost bool         // as Closed says

	// Set by Connect before the controller has the queue.
	ctrl *controller
	qid  uint16
	// sq is what completions need to know about the submission queue: its size in entries, and sqNoFlow. It is 0 until a
	// Connect has succeeded.
	sq atomic.Uint32

	// Under Target.mu.
	newcomer *crowd.Member[*Queue]
	leaves   bool // it is giving way

	shard  int      // index of the namespaces' counters to use
	fused  *Request // in state queueFused: the first of a fused operation
	chains chains

	stop     sync.Mutex
	stopped  []*Request // commands that arrived in state queueDraining
	requests []*Request // the transport's, those that have been used

	submitted atomic.Uint64 // commands begun
	completed atomic.Uint64 // commands answered; SQHD modulo the size
	seen      atomic.Int64  // when the last command arrived, with an accuracy of seenGrain
	io        ioCounters
}

// States of a queue.
const (
	queueNew            uint32 = iota // waiting for Connect
	queueConnecting                   // Connect is being executed
	queueAuthenticating               // connected, and the host has to authenticate itself first
	queueConnected
	queueFused    // connected, and holds the first command of a fused operation
	queueDenied   // connected, but the host failed to authenticate itself again, or unasked: it may only fetch the reason
	queueDraining // connected, and begins no more commands: they are kept in stopped
	queueDown     // the connection is ending
)

// seenGrain is the accuracy of Queue.seen, in nanoseconds, so that it isn't written for every command.
const seenGrain = int64(time.Millisecond)

// gather makes the transport send together the responses that a row of a volume's answers leads to.
func (q *Queue) gather(row *blockdev.Row) {
	if c, ok := q.conn.(Gatherer); ok && c.BeginRow() {
		row.AtEnd(c)
	}
}

// Submit takes a command whose capsule has arrived. It responds through Conn.Respond, perhaps before it returns. A
// transport calls it from one goroutine at a time per queue.
func (q *Queue) Submit(r *Request) {
	now := r.Arrived
	if now == 0 {
		now = q.t.Now()
	}
	if now-q.seen.Load() > seenGrain {
		q.seen.Store(now)
	}
	n := q.submitted.Add(1)
	r.begin(q, now)
	if sampled(n) {
		r.engine.sampled, r.engine.stages = true, [NumStages]int64{}
	}
	if r.Cmd.Flags()&^flagsReserved != nvme.FlagsSGL && !r.fusable() {
		return
	}
	switch q.state.Load() {
	case queueConnected:
	case queueFused:
		if r.Cmd.Fuse() != nvme.FuseSecond {
			q.dropFused()
		}
	case queueAuthenticating:
		if !r.authenticates() {
			r.fail(nvme.StatusAuthenticationRequired, noLoc)
			return
		}
	case queueDenied: // without Do Not Retry: the command isn't at fault, and on another connection it may succeed
		if !r.authenticates() {
			r.respond(nvme.StatusOperationDenied)
			return
		}
	case queueDraining:
		q.keep(r)
		return
	case queueDown:
		r.respond(nvme.StatusAbortSQDeleted)
		return
	default:
		r.beforeConnect()
		return
	}
	switch {
	case r.Cmd.Opcode() == nvme.OpFabrics:
		r.fabrics()
	case !q.ctrl.live.Load():
		r.notReady()
	case q.qid == 0:
		r.admin()
	case r.Cmd.Fuse() != nvme.FuseNone:
		r.fuse()
	default:
		r.io()
	}
}

// Expect announces a command that will be submitted soon, after others: meanwhile what a read or write will touch is
// fetched into the processor's caches. A transport that knows of several commands calls it from where it calls Submit.
func (q *Queue) Expect(cmd *nvme.Command) {
	var op blockdev.Op
	switch cmd.Opcode() {
	case nvme.OpRead:
		op = blockdev.OpRead
	case nvme.OpWrite:
		op = blockdev.OpWrite
	default:
		return
	}
	if q.state.Load() != queueConnected || q.qid == 0 {
		return
	}
	ns := q.ctrl.namespace(cmd.NSID())
	if ns == nil || ns.prefetcher == nil {
		return
	}
	ns.prefetcher.Prefetch(op, int64(cmd.SLBA()<<ns.shift), int64(uint64(cmd.Blocks())<<ns.shift))
}

// notReady ends a command to a controller that isn't enabled, or is shut down. If the controller has ended, the
// command isn't answered, nor is the first half of a fused operation that the queue holds: its connection is about to
// end, which makes the host send the commands again, perhaps by another path. An error with Do Not Retry would make it
// give up.
func (r *Request) notReady() {
	q := r.engine.q
	if q.qid == 0 || !q.ctrl.ended() {
		r.respond(nvme.StatusCommandSequence | nvme.StatusDNR)
		return
	}
	if !q.state.CompareAndSwap(queueConnected, queueDraining) && q.state.CompareAndSwap(queueFused, queueDraining) {
		q.keep(q.fused)
	}
	q.keep(r)
}

// flagsReserved are bits 5:2 of the flags byte.
const flagsReserved = 0x3c

// fusable reports whether a command with unusual flags can go on: PSDT must be 01b, as Fabrics demands of every
// command, and the command must be part of a fused operation on an I/O queue. If it can't, fusable responds.
func (r *Request) fusable() bool {
	loc := uint16(offFUSE)
	if r.Cmd.Flags()&0xc0 != nvme.FlagsSGL {
		loc = offPSDT
	} else if q := r.engine.q; q.connected() && q.qid != 0 && r.Cmd.Fuse() <= nvme.FuseSecond && r.Cmd.Opcode() != nvme.OpFabrics {
		return true
	}
	r.engine.q.dropFused()
	if r.connects() { // it never fails with Invalid Field in Command ("Connect Command and Response")
		r.refuseConnect(&nvme.ConnectData{}, refuseCommand(offFUSE, "flags %#02x, want %#02x (SGL, not fused)", r.Cmd.Flags(), nvme.FlagsSGL))
		return false
	}
	r.fail(nvme.StatusInvalidField, loc)
	return false
}

func (q *Queue) connected() bool {
	s := q.state.Load()
	return s >= queueAuthenticating && s <= queueDraining
}

// Fields of Queue.sq.
const (
	sqSizeMask = 1<<20 - 1
	sqNoFlow   = 1 << 20 // the host disabled SQ flow control
)

// complete fills in SQHD of one more completion. An entry of the submission queue counts as free when its command is
// answered, not when it is taken, so that a host that obeys SQHD never has more commands outstanding than the transport
// can hold. Without flow control, and before Connect has succeeded, SQHD stays as it is. The SQ Identifier is a reserved
// field over Fabrics.
func (q *Queue) complete(cqe *nvme.Completion) {
	n := q.completed.Add(1)
	sq := q.sq.Load()
	if size := sq & sqSizeMask; size != 0 && sq&sqNoFlow == 0 {
		cqe.SetSQHD(uint16(n % uint64(size)))
	}
}

// Closing says that the connection is ending because of err (nil if the host closed it in an orderly way): no more data
// will move. The engine gives back the requests that it was only holding. A transport calls it once, from any
// goroutine, as soon as it knows, even after Conn.Disconnect.
func (q *Queue) Closing(err error) {
	old := q.state.Swap(queueDown)
	if old == queueDown {
		return
	}
	defer q.over()
	q.timer.Stop()
	if a := q.auth.Load(); a != nil {
		a.timer.Stop()
	}
	switch old {
	case queueConnected, queueAuthenticating, queueDenied:
	case queueFused:
		q.fused.respond(nvme.StatusAbortSQDeleted)
	case queueDraining:
		q.giveBack()
	default:
		return // a Connect in progress sees the state and undoes itself
	}
	for _, ns := range q.ctrl.sub.all() {
		q.leave(ns)
	}
	q.ctrl.queueDown(q, err)
}

// Closed says that the connection is gone, and why, and that every request was given back: each Respond has been
// followed by Sent. It is the last call on a queue.
func (q *Queue) Closed(err error) {
	q.Closing(err)
	q.lost = !Orderly(err)
	q.over()
}

// over has the target forget q after both Closing and Closed. A goroutine of the engine may have called Closing first and
// be at it still, and the target isn't closed before it's done.
func (q *Queue) over() {
	if q.ends.Add(1) == 2 {
		q.t.forget(q, q.lost)
	}
}

// disconnect ends the connection from our side.
func (q *Queue) disconnect(err error) {
	q.conn.Disconnect(err)
	q.Closing(err)
}

func (q *Queue) connectTimeout() {
	if q.connected() || q.state.Load() == queueDown {
		return
	}
	q.t.log.Warn("connection closed: no Connect command in time", q.identity("timeout", q.t.limits.ConnectTimeout)...)
	q.disconnect(ErrConnectTimeout)
}

// inFlight returns the number of commands that were begun and are not answered.
func (q *Queue) inFlight() int {
	done := q.completed.Load()
	return int(q.submitted.Load() - done)
}

// busy is inFlight, except for Asynchronous Event Requests that wait for an event, which each host leaves with its
// controller. Called with controller.mu held.
func (q *Queue) busy() int {
	if q.qid != 0 {
		return q.inFlight()
	}
	return max(0, q.inFlight()-len(q.ctrl.events.held))
}

// Orderly reports whether a connection that ended with err was closed rather than lost.
func Orderly(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, ErrClosed) ||
		errors.Is(err, ErrReset) || errors.Is(err, ErrRemoved) ||
		errors.Is(err, ErrControllerGone) && !errors.Is(err, ErrControllerLost) ||
		errors.Is(err, ErrNotAllowed) || errors.Is(err, ErrDraining) || errors.Is(err, ErrAuthentication) ||
		errors.Is(err, ErrEndpointClosed)
}
