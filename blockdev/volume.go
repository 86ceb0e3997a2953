package blockdev

// Volume is a range of blocks. Methods may be called from any goroutine.
type Volume interface {
	// Info describes the volume. Only Size may change while it is open (see Resizer).
	Info() Info

	// Submit starts r. r.Complete is called exactly once, with r.Err set: before Submit returns if the volume can
	// answer at once, otherwise later from another goroutine. The volume does not allocate for a request and does not
	// keep it after completion.
	Submit(r *Request)

	// Close waits for submitted requests and for views, makes everything written durable and frees the volume. After
	// that Submit answers ErrGone, and so does a second Close.
	Close() error
}

// Info describes a volume.
type Info struct {
	Kind      string // "file", "mem", "null", "pmem"
	Path      string // what the user named; empty for mem and null
	Mode      string // how it is accessed, for people: "direct I/O", "buffered", "DAX, CLWB", …
	Size      int64  // bytes, a multiple of BlockSize
	BlockSize int    // logical block, a power of two from MinBlockSize to MaxBlockSize
	PhysBlock int    // preferred write granularity, a multiple of BlockSize
	Align     int    // memory alignment with which buffers need no copy; 1 for any
	ReadOnly  bool
	// Instance tells a volume whose content is lost when it is closed from all others, also from those that are opened
	// later in the same way. It is empty for other volumes, and for null, which has no content.
	Instance string
	// VolatileCache: a completed write without FUA may be lost before a Flush.
	VolatileCache bool
	// AtomicBlocks is the number of logical blocks that are written whole or not at all, even if the power fails; at
	// least 1 if the device below promises that, else 0. Other requests find each block whole even then.
	AtomicBlocks int
	// Discard: OpDiscard frees space. ZeroAfterDiscard: discarded blocks read as zeroes.
	Discard, ZeroAfterDiscard bool
	// LoanUnit: a Lender lends multiples of this many bytes; 0 if the volume lends nothing.
	LoanUnit int
}

// Name returns the path of the volume or, if it has none, its kind.
func (i *Info) Name() string {
	if i.Path != "" {
		return i.Path
	}
	return i.Kind
}

// Op is what a request does. Every volume takes all of them; one that can't discard ignores OpDiscard.
type Op uint8

// Operations.
const (
	OpRead Op = iota + 1
	OpWrite
	OpFlush       // everything completed before it is durable when it completes
	OpDiscard     // the content may be forgotten
	OpWriteZeroes // the range reads as zeroes afterwards; with MayUnmap its space may be freed
)

// Request is one operation. It is made once and reused: its owner sets the fields, calls Volume.Submit, and owns it
// again in Complete.
type Request struct {
	Op       Op
	FUA      bool // OpWrite, OpWriteZeroes: durable when it completes
	MayUnmap bool // OpWriteZeroes
	Offset   int64
	Length   int64    // bytes; the sum of len(Bufs) for OpRead and OpWrite
	Bufs     [][]byte // read into, or written from, each of any length; best aligned to Info.Align
	// Loan, if it isn't 0, says that the data of an OpWrite is already in memory of the volume (see Lender). Bufs is
	// empty then.
	Loan LoanToken

	// Unwanted reports whether a request that changes the volume is no longer wanted. A volume may call it before it
	// begins one that had to wait, or the rest of one, and complete that with ErrUnwanted instead. It may be nil.
	Unwanted func() bool

	// Complete is called when the operation has ended, with Err set. It must not block, and may submit the next request
	// to the volume, which must not hold a lock that Submit takes.
	Complete func(*Request)
	Err      error // nil, or an error that wraps one of the kinds in errors.go
	Row      *Row  // for Complete: others may complete right after it; nil if that isn't known

	// Private is for the volume while it has the request.
	Private any

	lane   *lane    // file: the lane that counts it
	done   int64    // Guard, file: bytes applied
	mark   uint32   // file: commits.failures, or for a flush commits.epoch, when it was submitted
	locked bool     // file: it has its range (see rangeLock)
	next   *Request // the queue that the request waits in
}

// Memory is a Volume whose blocks lie in memory, so that a transport can send from them.
type Memory interface {
	Volume
	// Regions returns the mappings that hold the blocks. They stay the same while the volume is open, and are
	// registered once with a device.
	Regions() []*Region
	// View appends to segs the memory that holds length bytes at offset, in order, and returns the result. The bytes
	// stay in place, and readable, until Release is called with the returned token; writes to the range wait until
	// then, and complete inside Release. An error that is ErrBusy means that such a write is already waiting: submit an
	// OpRead instead.
	View(segs []Segment, offset, length int64) ([]Segment, ViewToken, error)
	Release(ViewToken)
}

// Region is one mapping.
type Region struct {
	Mem  []byte
	Lent bool // it is a Lender's, to be filled: registered for local writes
	// File: touching it may raise SIGBUS, if the file was truncated or its medium failed after the region was handed
	// out. Code that touches it itself, rather than through a system call, must handle that.
	File bool
}

// Segment is a piece of a region.
type Segment struct {
	Region *Region
	Bytes  []byte
}

// ViewToken names a view that must be released.
type ViewToken uint64

// Prefetcher is a Memory that gives random access to more than the processor's caches hold.
type Prefetcher interface {
	Memory
	// Prefetch makes the processor begin to fetch what an OpRead, a View or an OpWrite of the range will touch, while
	// the caller does something else. It doesn't wait, promises nothing, and ignores a range that doesn't exist.
	Prefetch(op Op, offset, length int64)
}

// Resizer is a Volume whose size can change while it is open. Neither the volume nor a target that exports it looks for
// a change: the program that opened the volume calls Refresh, from time to time or when it knows of one.
type Resizer interface {
	Volume
	// OnResize makes Refresh call f with each new size, which Info has by then, until stop has returned. f must not
	// block, and must not call OnResize or stop.
	OnResize(f func(newSize int64)) (stop func())
	// Refresh checks whether the size has changed. Its error says why the volume doesn't use all of it, or couldn't be
	// opened again.
	Refresh() error
}

// Registrar is a Volume that is faster with buffers that were registered with it.
type Registrar interface {
	Volume
	// Register announces memory that buffers of requests will lie in. It doesn't wait: the volume uses the registration
	// once it can, and does without if the system limits how much may be pinned. unregister waits, and must be called
	// before the memory is unmapped, but not inside Complete; it may be called after Close.
	Register(mem []byte) (unregister func())
}
