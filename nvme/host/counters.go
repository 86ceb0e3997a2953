package host

import (
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// QueueCounters counts what one queue did. The counters only grow.
type QueueCounters struct {
	Submitted atomic.Uint64 // commands passed to the transport
	Completed atomic.Uint64 // responses
	Waited    atomic.Uint64 // commands that found the queue full and waited
	Cut       atomic.Uint64 // commands that ended without a response

	BytesRead    atomic.Uint64 // of data, controller to host
	BytesWritten atomic.Uint64 // of data, host to controller

	// Responses with a status other than success, by status code type.
	GenericErrors atomic.Uint64
	CommandErrors atomic.Uint64 // command specific
	MediaErrors   atomic.Uint64
	PathErrors    atomic.Uint64
	OtherErrors   atomic.Uint64

	Timeouts atomic.Uint64 // commands not answered in time
}

// Errors returns the number of responses with a status other than success.
func (c *QueueCounters) Errors() uint64 {
	return c.GenericErrors.Load() + c.CommandErrors.Load() + c.MediaErrors.Load() + c.PathErrors.Load() + c.OtherErrors.Load()
}

// completed counts a response.
func (c *QueueCounters) completed(r *Request) {
	c.Completed.Add(1)
	st := r.CQE.Status()
	if st.OK() {
		switch n := uint64(len(r.Data)); {
		case n == 0:
		case r.Cmd.Direction() == nvme.CtrlToHost:
			c.BytesRead.Add(n)
		case r.Cmd.Direction() == nvme.HostToCtrl:
			c.BytesWritten.Add(n)
		}
		return
	}
	switch st.SCT() {
	case 0:
		c.GenericErrors.Add(1)
	case 1:
		c.CommandErrors.Add(1)
	case 2:
		c.MediaErrors.Add(1)
	case 3:
		c.PathErrors.Add(1)
	default:
		c.OtherErrors.Add(1)
	}
}

// Counters counts what a controller did, apart from its queues.
type Counters struct {
	KeepAlives        atomic.Uint64 // Keep Alive commands answered with success
	KeepAliveFailures atomic.Uint64 // … with another status
	AsyncEvents       atomic.Uint64
	Aborts            atomic.Uint64 // Abort commands sent
}
