package loadgen

// Op is the direction of an operation.
type Op uint8

// Operations. Trim says that blocks are no longer needed: it moves no data, and its bytes are those of the blocks.
// Flush has no direction: it makes durable what was written.
const (
	Read Op = iota
	Write
	Trim
	ops
	Flush = ops
)

// Directions is the number of directions, which doesn't include Flush.
const Directions = int(ops)

// String returns fio's name of the direction.
func (o Op) String() string { return [...]string{"read", "write", "trim", "sync"}[o] }

// IO is one operation. A job makes as many as its depth and reuses them.
type IO struct {
	Op     Op
	FUA    bool   // a Write is durable when it ends
	Offset int64  // bytes
	Length int    // bytes, a whole number of blocks; 0 for a Flush
	Buf    []byte // what a Read or Write moves, Length bytes; nil for others
	// Done is called once for each Submit, with Err set.
	Done func(*IO)
	Err  error

	Private any // for the queue's own use

	mem     []byte   // Buf is a part of it
	started int64    // nanoseconds: when the operation was submitted, or was due
	due     bool     // started is when it was due
	aside   bool     // it reads back what was written, and is in no figure
	version []uint32 // versions of the units of a checked read, when it began
}

// Queue carries the operations of one job.
type Queue interface {
	// Submit starts io. It does not block, and may be called by several goroutines at once, also within Done.
	Submit(io *IO)
	// Alloc returns a buffer that Submit takes without a copy; Free frees it.
	Alloc(n int) ([]byte, error)
	Free([]byte)
}

// Device is what jobs run on.
type Device interface {
	Size() int64    // bytes
	BlockSize() int // bytes
	// OpenQueue returns a queue for job number i alone, which may share what carries it with those of other jobs.
	OpenQueue(i int) (Queue, error)
}
