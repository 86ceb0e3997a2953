package target

// Queue is the engine's half of one NVMe queue pair: one transport connection.
type Queue struct {
	t    *Target
	conn Conn
}

// Submit takes a command whose capsule has arrived. It answers through Conn.Respond, perhaps
// before it returns. A transport calls it from one goroutine at a time per queue.
func (q *Queue) Submit(r *Request) { q.conn.Respond(r) }

// Closed says that the connection is gone, and why, and that every request was given back:
// each Respond has been followed by Sent. It is the last call on a queue.
func (q *Queue) Closed(err error) {}
