package host

import "github.com/nvme-anywhere/nvmeof/nvme"

// Request is one command of the host. Its owner makes it once, sets Cmd, Data and Done, and
// submits it again and again.
type Request struct {
	Cmd  nvme.Command    // all but CID and SGL, which the queue and the transport set
	CQE  nvme.Completion // the response, valid in Done when Err is nil
	Data []byte          // what is sent or received, by the direction of the command
	// Done is called when the request ended, in the transport's context: it must not block,
	// and may submit. Err is then nil when a response arrived, whatever its status.
	Done func(*Request)
	Err  error

	Slot uint16 // index in the queue's tables, set by the queue
}

// Status is the response's status as an error: nil for success; see nvme.StatusError.
func (r *Request) Status() nvme.Status { return r.CQE.Status() }
