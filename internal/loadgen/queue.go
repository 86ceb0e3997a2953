package loadgen

// Op is the direction of an operation.
type Op uint8

// Operations. Flush has no direction: it moves nothing, and makes durable what was written.
const (
	Read Op = iota
	Write
	ops
	Flush = ops
)

// String is fio's name of the direction.
func (o Op) String() string { return [...]string{"read", "write", "sync"}[o] }

// IO is one operation. A job makes as many as it is deep and uses them again and again.
type IO struct {
	Op     Op
	FUA    bool   // a Write is durable when it ends
	Offset int64  // bytes
	Buf    []byte // a whole number of blocks; none of a Flush
	// Done is called once for each Submit, with Err set.
	Done func(*IO)
	Err  error

	Private any // the queue's own

	mem     []byte   // what Buf is a part of
	started int64    // nanoseconds: when it was submitted, or was due
	due     bool     // started is when it was due
	version []uint32 // of the blocks of a read that is checked, when it began
}

// Queue carries the operations of one job.
type Queue interface {
	// Submit starts io. It does not block.
	Submit(io *IO)
	// Alloc gives a buffer that Submit takes without a copy; it is freed by Free.
	Alloc(n int) ([]byte, error)
	Free([]byte)
}

// Device is what jobs run on.
type Device interface {
	Size() int64    // bytes
	BlockSize() int // bytes
	// OpenQueue gives the queue of job number i, which may be shared with other jobs.
	OpenQueue(i int) (Queue, error)
}
