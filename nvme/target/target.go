package target

// Target is the engine: subsystems, controllers and queues behind any number of transports.
type Target struct{}

// NewQueue begins a queue on a new transport connection. The error is ErrLimit when too many
// are open, and ErrClosed when the target is closing.
func (t *Target) NewQueue(c Conn) (*Queue, error) { return &Queue{t: t, conn: c}, nil }
