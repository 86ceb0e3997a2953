package blockdev

import (
	"crypto/rand"
	"fmt"
	"os"
	"unsafe"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/prefetch"
)

// memory is a volume in anonymous memory, one mapping. Pages are allocated when they are written and freed when they
// are discarded, so volumes may be larger than the free memory as long as the data written isn't.
//
// Whole stripes may be written to spare places that were lent (memlend.go), and then stay there.
type memory struct {
	info   Info
	mem    []byte // the stripes' places, and the spare ones
	region [1]*Region
	guard  *Guard
	places *places
	life   *Lifetime
}

// background is the length from which discard and write zeroes are done outside the caller's goroutine: freeing pages
// takes some 50 ms per GiB.
const background = 8 << 20

// NewMemory returns a volume of o.Size bytes in memory. Its content is lost on Close; until then it has no cache that
// could be lost, so Flush has nothing to do.
func NewMemory(o Options) (Volume, error) {
	if err := validateSized("mem", &o); err != nil {
		return nil, err
	}
	if most, whose := memoryLimit(); o.Size > most {
		return nil, OpenError("mem", ErrCapacity, fmt.Errorf(
			"%s, and %s %s of memory and swap, so that hosts could have the program killed by writing: "+
				"take less, or a file, which may be sparse", FormatSize(o.Size), whose, humanize.IBytes(uint64(most))))
	}
	stripes := int((o.Size + stripeSize - 1) >> stripeShift)
	over := min(stripes, spares)
	mem, err := unix.Mmap(-1, 0, (stripes+over)<<stripeShift, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, OpenError("mem", ErrCapacity, fmt.Errorf("can't map %d bytes: %w", o.Size, err))
	}
	v := &memory{
		info: Info{
			Kind: "mem", Mode: "memory", Size: o.Size,
			BlockSize: o.BlockSize, PhysBlock: max(o.BlockSize, pageSize), Align: 1,
			ReadOnly: o.ReadOnly, Instance: rand.Text(), AtomicBlocks: 1, Discard: true, ZeroAfterDiscard: true, LoanUnit: stripeSize,
		},
		mem:    mem,
		region: [1]*Region{{Mem: mem, Lent: !o.ReadOnly}},
		places: newPlaces(mem, stripes),
		life:   NewLifetime(),
	}
	v.guard = NewGuard(o.Size, v.apply, v.finish)
	v.guard.moveWithin(v.places)
	return v, nil
}

// pageSize is the unit in which memory is freed: 4 KiB on amd64; on arm64 what the kernel was built for, up to 64 KiB.
var pageSize = os.Getpagesize()

// validateSized checks the options of a kind that has only a size.
func validateSized(kind string, o *Options) error {
	err := o.Validate()
	if err == nil {
		o.BlockSize = o.BlockSizeOr(DefaultBlockSize)
		err = CheckSize(o.Size, o.BlockSize)
	}
	if err != nil {
		return OpenError(kind, ErrInvalid, err)
	}
	return nil
}

func (v *memory) Info() Info { return v.info }

func (v *memory) Submit(r *Request) {
	if !v.life.Enter() {
		v.Return(r.TakeLoan())
		r.End(v.info.Gone(r.Op, r.Offset))
		return
	}
	if err := Check(&v.info, v.info.Size, r); err != nil {
		v.end(r, err)
		return
	}
	switch r.Op {
	case OpRead:
		v.guard.Read(r)
	case OpWrite:
		if r.Loan != 0 {
			v.writeLent(r)
			return
		}
		if !v.guard.Write(r) {
			return
		}
	case OpDiscard, OpWriteZeroes:
		if r.Length >= background {
			go v.drop(r)
		} else {
			v.drop(r)
		}
		return
	}
	v.end(r, nil)
}

func (v *memory) end(r *Request, err error) {
	if r.Loan != 0 {
		r.Bufs = r.Bufs[:0]
		v.Return(r.TakeLoan())
	}
	v.life.Leave()
	r.End(err)
}

func (v *memory) finish(r *Request) { v.end(r, nil) }

// piece returns the n bytes at off, within a stripe.
func (v *memory) piece(off, n int64) []byte {
	at := v.places.stripe(off>>stripeShift).offset() + off&(stripeSize-1)
	return v.mem[at : at+n : at+n]
}

// run returns the first part of the n bytes at off that is contiguous in memory.
func (v *memory) run(off, n int64) []byte {
	first := v.places.stripe(off >> stripeShift)
	at := first.offset() + off&(stripeSize-1)
	length := pieceAt(off, n)
	for next := first + 1; length < n && v.places.stripe((off+length)>>stripeShift) == next; next++ {
		length += pieceAt(off+length, n-length)
	}
	return v.mem[at : at+length : at+length]
}

// apply does one piece of a request.
func (v *memory) apply(r *Request, off, n int64) {
	if !r.drops() {
		r.applyTo(v.piece(off, n), off-r.Offset)
		return
	}
	for n > 0 {
		b := v.run(off, n)
		r.applyTo(b, off-r.Offset)
		off, n = off+int64(len(b)), n-int64(len(b))
	}
}

// drops reports whether the request makes zeroes of what is there, and its memory may be given back.
func (r *Request) drops() bool { return r.Op == OpDiscard || r.Op == OpWriteZeroes }

// applyTo does the piece of a request that begins at its byte skip, in the memory that has the piece.
func (r *Request) applyTo(piece []byte, skip int64) {
	switch {
	case r.Op == OpRead:
		r.CopyIn(piece, skip)
	case r.Op == OpWrite:
		r.CopyOut(piece, skip)
	case r.Op == OpWriteZeroes && len(piece) < stripeSize:
		clear(piece)
	default:
		free(piece)
	}
}

// drop zeroes a range. If that is large, the spare places are given back to the system, too.
func (v *memory) drop(r *Request) {
	if r.Length >= background {
		v.places.empty()
	}
	if v.guard.Write(r) {
		v.end(r, nil)
	}
}

// free zeroes b and gives its whole pages back.
func free(b []byte) {
	at := int64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	from, to := wholePages(at, at+int64(len(b)), int64(pageSize))
	if from, to = from-at, to-at; from < to && unix.Madvise(b[from:to], unix.MADV_DONTNEED) == nil {
		clear(b[:from])
		clear(b[to:])
		return
	}
	clear(b)
}

// wholePages returns the whole pages of a range, if from is less than to. Madvise needs the exact range: it refuses a
// start within a page, but rounds an end within a page up to the page's end.
func wholePages(off, end, page int64) (from, to int64) {
	return (off + page - 1) &^ (page - 1), end &^ (page - 1)
}

func (v *memory) Regions() []*Region { return v.region[:] }

// Prefetch fetches the beginning of the range. A view touches nothing, but its user does when it sends it.
func (v *memory) Prefetch(op Op, offset, length int64) {
	if !v.life.Enter() {
		return
	}
	if length > 0 && CheckRange(&v.info, v.info.Size, op, offset, length) == nil {
		prefetch.Start(v.piece(offset, pieceAt(offset, length)))
	}
	v.life.Leave()
}

func (v *memory) View(segs []Segment, offset, length int64) ([]Segment, ViewToken, error) {
	if !v.life.Enter() {
		return segs, 0, v.info.Gone(OpRead, offset)
	}
	if err := CheckRange(&v.info, v.info.Size, OpRead, offset, length); err != nil {
		v.life.Leave()
		return segs, 0, err
	}
	t, ok := v.guard.View(offset, length)
	if !ok {
		v.life.Leave()
		return segs, 0, ErrView
	}
	out := segs
	for length > 0 && len(out)-len(segs) < MaxSegments {
		b := v.run(offset, length)
		out = append(out, Segment{Region: v.region[0], Bytes: b})
		offset, length = offset+int64(len(b)), length-int64(len(b))
	}
	if length > 0 { // in too many pieces
		v.Release(t)
		return segs, 0, ErrView
	}
	return out, t, nil
}

func (v *memory) Release(t ViewToken) {
	v.guard.Release(t)
	v.life.Leave()
}

func (v *memory) Close() error {
	if !v.life.Close() {
		return v.info.Closed("close")
	}
	v.guard.stop()
	return unix.Munmap(v.mem)
}
