package host

import (
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Request is one command of the host. Its owner makes it once, sets Cmd, Data and Done, and
// submits it again and again. From Submit until Done it belongs to the queue, and Data with it.
type Request struct {
	Cmd  nvme.Command    // all but CID and SGL, which the queue and the transport set
	CQE  nvme.Completion // the response, valid in Done when Err is nil
	Data []byte          // what is sent or received, by the direction of the command
	// Done is called when the request ended, in the transport's context: it must not block,
	// and may submit. Err is then nil when a response arrived, whatever its status.
	Done func(*Request)
	Err  error

	Slot uint16 // index in the queue's tables, set by the queue

	// What a Carrier keeps with a request that it carries; others leave it alone.
	Route Route // is told of the end first, once; nil: only Done is
	Lane  int   // which of the queues on each way it takes
	Tries int   // how often it was answered with an error and sent again
	Cuts  int   // how often the loss of a controller cut it short
	// Refused is when it was first answered with an ANA status; zero: it has not been.
	Refused time.Time

	cancelled atomic.Bool // by who waits for it
	sent      bool        // set with Err: the transport had it
	qid       uint16
	unlimited bool          // may be outstanding for ever: Asynchronous Event Request
	next      *Request      // in the queue's waiting list
	self      [1]*Request   // to submit one without making a slice
	wake      chan struct{} // of Do
}

// Route is the way by which a Carrier sent a request.
type Route interface {
	// Ended is told that r ended, in the transport's context, before its owner is. Where it
	// returns true, r goes on: it has been sent again or will be, and Done isn't called now.
	Ended(r *Request) bool
}

// Cancelled reports whether whoever waits for r wants its end: it must not be sent again.
func (r *Request) Cancelled() bool { return r.cancelled.Load() }

// Sent reports of a request that ended with Err whether a controller may have seen it.
func (r *Request) Sent() bool { return r.sent }

// end tells whoever is concerned that r ended.
func (r *Request) end() {
	way := r.Route
	r.Route = nil // it is another, or none, that has r sent again
	if way == nil || !way.Ended(r) {
		r.Done(r)
	}
}

// Status is the response's status: nvme.StatusSuccess for success.
func (r *Request) Status() nvme.Status { return r.CQE.Status() }

// Check is how the request ended, as an error: nil for success, Err where no response arrived,
// else an *nvme.StatusError that names the command.
func (r *Request) Check() error {
	if r.Err != nil {
		return r.Err
	}
	return r.CQE.ErrFor(&r.Cmd, r.qid)
}
