package target

// engineState is the engine's part of a Request.
type engineState struct {
	q *Queue
}

// Pulled says that Conn.Pull is done: r.Data holds the host's data, or err says why not.
func (r *Request) Pulled(err error) { r.engine.q.conn.Respond(r) }

// Resume says that Conn.Alloc, which returned false, may succeed now.
func (r *Request) Resume() { r.engine.q.conn.Respond(r) }

// Sent says that the transport needs nothing of r.Data any more: the response is on the wire
// (RDMA: and acknowledged), or the connection is dead. It is called exactly once for each
// Respond, on failure too; afterwards the transport may use r for another command.
func (r *Request) Sent() {}
