package host

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Request is one command of the host. Its owner makes it once, sets Cmd, Data and Done, and may submit it any
// number of times. From Submit until Done it belongs to the queue, and so does Data.
type Request struct {
	Cmd  nvme.Command    // except CID and SGL, which the queue and the transport set
	CQE  nvme.Completion // the response, valid in Done when Err is nil
	Data []byte          // sent or received, depending on the direction of the command
	// Done, which must be set, is called in the transport's context when the request has ended: it must not block, and
	// may submit. Err is then nil if a response arrived, whatever its status.
	Done func(*Request)
	Err  error

	Slot uint16 // index in the queue's tables, set by the queue

	// State of a Carrier that carries the request; others leave it alone.
	Route Route // is told of the end first, once; if nil, only Done is called
	Lane  int   // which of each controller's queues it takes
	Tries int   // how often it was answered with an error and resent
	Cuts  int   // how often the loss of a controller cut it short
	// Refused is when it was first answered with an ANA status; zero if it hasn't been.
	Refused time.Time

	cancelled atomic.Bool // set by the caller that waits for it
	catching  sync.Mutex  // held by IfCancelled
	sent      bool        // valid with Err: the transport was given it
	qid       uint16
	unlimited bool          // may be outstanding forever: Asynchronous Event Request
	next      *Request      // in the queue's waiting list
	self      [1]*Request   // lets SubmitOne do without a new slice
	wake      chan struct{} // used by Do
}

// Route is the way by which a Carrier sent a request.
type Route interface {
	// Ended is called when r has ended, in the transport's context, before its owner is told. If it returns true, r
	// goes on: it has been or will be sent again, and Done isn't called now.
	Ended(r *Request) bool
}

// Cancelled reports whether the caller that waits for r has given it up: it must not be sent again.
func (r *Request) Cancelled() bool { return r.cancelled.Load() }

// IfCancelled calls cancel if the caller that waits for r has given it up. Until it has returned, the caller doesn't
// use r again, even if r has ended: so it can't be another command that cancel cancels.
func (r *Request) IfCancelled(cancel func()) {
	r.catching.Lock()
	defer r.catching.Unlock()
	if r.cancelled.Load() {
		cancel()
	}
}

// reuse makes r, which was given up and has ended, ready for another command.
func (r *Request) reuse() {
	r.catching.Lock()
	defer r.catching.Unlock()
	r.cancelled.Store(false)
}

// Sent reports, for a request that a queue ended with Err, whether the controller of that queue may have seen it.
func (r *Request) Sent() bool { return r.sent }

// end tells the Route, and unless r goes on, the owner, that r ended.
func (r *Request) end() {
	way := r.Route
	r.Route = nil // if r is sent again, it may be by another Route, or by none
	if way == nil || !way.Ended(r) {
		r.Done(r)
	}
}

// Status returns the response's status: nvme.StatusSuccess for success.
func (r *Request) Status() nvme.Status { return r.CQE.Status() }

// Check returns the outcome of the request as an error: nil for success, Err if no response arrived, or else an
// *nvme.StatusError that names the command.
func (r *Request) Check() error {
	if r.Err != nil {
		return r.Err
	}
	return r.CQE.ErrFor(&r.Cmd, r.qid)
}
