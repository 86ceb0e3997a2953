package loadgen

// Op is the direction of an operation.
type Op uint8

// Operations. Trim says that blocks are not needed any more: it moves nothing, and its bytes are those of the blocks.
// Flush has no direction: it makes durable what was written.
const (
	Read Op = iota
	Write
	Trim
	ops
	Flush = ops
)

// Directions is how many there are, Flush apart.
const Directions = int(ops)

// String is fio's name of the direction.
func (o Op) String() string { return [...]string{"read", "write", "trim", "sync"}[o] }

// IO is one operation. A job makes as many as it is deep and uses them again and again.
type IO struct {
	Op     Op
	FUA    bool   // a Write is durable when it ends
	Offset int64  // bytes
	Length int    // bytes, a whole number of blocks; 0 of a Flush
	Buf    []byte // what a Read or Write moves, Length bytes; nil of others
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
