package blockdev

// Volume is a range of blocks. Methods may be called from any goroutine.
type Volume interface {
	// Info describes the volume. Only Size may change while it is open (see Resizer).
	Info() Info

	// Submit starts r. r.Complete is called exactly once, with r.Err set: before Submit
	// returns where the volume can answer at once, else later from another goroutine.
	// The volume does not allocate for a request and does not keep it after completion.
	Submit(r *Request)

	// Close waits for what was submitted, and for views, makes it durable and frees the
	// volume. Submit answers ErrGone from then on, and so does a second Close.
	Close() error
}

// Info describes a volume.
type Info struct {
	Kind      string // "file", "mem", "null", "pmem"
	Path      string // what the user named; empty for mem and null
	Mode      string // how it is reached, for people: "direct I/O", "buffered", "DAX, CLWB", …
	Size      int64  // bytes, a multiple of BlockSize
	BlockSize int    // logical block, a power of two from 512
	PhysBlock int    // preferred write granularity, a multiple of BlockSize
	Align     int    // memory alignment of buffers that spares a copy; 1 for any
	ReadOnly  bool
	// VolatileCache: a completed write without FUA may be lost before a Flush.
	VolatileCache bool
	// AtomicBlocks is the number of logical blocks that are written whole or not at all, also
	// under power loss; at least 1 where the device below promises it, else 0.
	AtomicBlocks int
	// Discard: Discard frees space. ZeroAfterDiscard: discarded blocks read as zeroes.
	Discard, ZeroAfterDiscard bool
	// LoanUnit: a Lender lends multiples of so many bytes; 0 is a block.
	LoanUnit int
}

// Op is what a request does.
type Op uint8

// Operations.
const (
	OpRead Op = iota + 1
	OpWrite
	OpFlush       // everything completed before it is durable when it completes
	OpDiscard     // the content may be forgotten
	OpWriteZeroes // the range reads as zeroes; with MayUnmap its space may be freed
)

// Request is one operation. It is made once and used again and again: its owner sets the
// fields, calls Volume.Submit, and owns it again in Complete.
type Request struct {
	Op       Op
	FUA      bool // OpWrite, OpWriteZeroes: durable when it completes
	MayUnmap bool // OpWriteZeroes
	Offset   int64
	Length   int64    // bytes; the sum of len(Bufs) for OpRead and OpWrite
	Bufs     [][]byte // read into, or written from; best aligned as Info.Align says
	// Loan, where it isn't 0, says that the data of an OpWrite lies in memory of the volume
	// already (see Lender). Bufs is empty then.
	Loan LoanToken

	// Unwanted tells whether nobody wants an OpWrite any more. A volume may ask before it begins one that had to wait,
	// and end it with ErrUnwanted instead. It may be nil.
	Unwanted func() bool

	// Complete is called when the operation ended, with Err set. It must not block.
	Complete func(*Request)
	Err      error // nil, or an error that wraps one of the kinds in errors.go
	Row      *Row  // for Complete: others may complete right behind it; nil where that isn't known

	// Private is for the volume while it has the request (a free list, a ring index).
	Private any

	lane *lane    // file: where it is counted
	done int64    // Guard, file: bytes applied
	mark uint32   // file: syncs that had failed when it was submitted
	next *Request // the queue that the request waits in
}

// Memory is a Volume whose blocks lie in memory, so that a transport can send from them.
type Memory interface {
	Volume
	// Regions are the mappings that hold the blocks: stable while the volume is open, to be
	// registered once with a device.
	Regions() []*Region
	// View appends to segs the memory that holds length bytes at offset, in order, and
	// returns it. The bytes stay in place, and readable, until release is called with the
	// same token; writes to the range wait until then, and complete inside Release. An error
	// that is ErrBusy means that such a write waits already: submit an OpRead instead.
	View(segs []Segment, offset, length int64) ([]Segment, ViewToken, error)
	Release(ViewToken)
}

// Region is one mapping.
type Region struct {
	Mem  []byte
	Lent bool // a Lender's, to be filled: registered for local writes
	// File: touching it may raise SIGBUS, where the file was cut or its medium failed after it was
	// given away. Who touches it, rather than have the system do so, must expect that.
	File bool
}

// Segment is a piece of a region.
type Segment struct {
	Region *Region
	Bytes  []byte
}

// ViewToken names a view that must be released.
type ViewToken uint64

// Prefetcher is a Memory that is random access to more than the processor's caches hold.
type Prefetcher interface {
	Memory
	// Prefetch has the processor begin to fetch what an OpRead or a View of the range will touch, or an
	// OpWrite, while the caller does something else. It doesn't wait, promises nothing, and passes over a
	// range that isn't there.
	Prefetch(op Op, offset, length int64)
}

// Resizer is a Volume whose size can change while it is open.
type Resizer interface {
	Volume
	// OnResize has f told of each new size, from Refresh, until stop has returned. f must not block, nor
	// call OnResize or stop.
	OnResize(f func(newSize int64)) (stop func())
	// Refresh looks whether the size has changed.
	Refresh() error
}

// Registrar is a Volume that is faster with buffers that it was told of.
type Registrar interface {
	Volume
	// Register tells of memory that buffers of requests will lie in. It doesn't wait: the
	// volume uses it when it can, and does without where the system limits how much may be
	// pinned. unregister waits, and must be called before the memory is unmapped, but not from
	// inside Complete; it may be called after Close.
	Register(mem []byte) (unregister func())
}
