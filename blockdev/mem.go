package blockdev

import (
	"fmt"
	"math"
	"os"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/prefetch"
)

// memory is a volume in anonymous memory, one mapping. Pages come into being when they are
// written and go when they are discarded, so volumes may be larger than the memory that is free
// as long as what is written isn't.
type memory struct {
	info   Info
	mem    []byte
	region [1]*Region
	guard  *Guard
	life   *Lifetime
}

// background is the length from which discard and write zeroes leave the caller's goroutine:
// freeing pages takes some 50 ms a GiB.
const background = 8 << 20

// NewMemory gives a volume of o.Size bytes in memory. What it holds is lost on Close; until
// then it has no cache that could be lost, so Flush has nothing to do.
func NewMemory(o Options) (Volume, error) {
	if err := validateSized("mem", &o); err != nil {
		return nil, err
	}
	if most := machineMemory(); o.Size > most {
		return nil, OpenError("mem", ErrCapacity, fmt.Errorf(
			"%s, and the machine has %s of memory and swap, so that hosts could have the program killed by writing: "+
				"take less, or a file, which may be sparse", FormatSize(o.Size), humanize.IBytes(uint64(most))))
	}
	mem, err := unix.Mmap(-1, 0, int(o.Size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, OpenError("mem", ErrCapacity, fmt.Errorf("can't map %d bytes: %w", o.Size, err))
	}
	v := &memory{
		info: Info{
			Kind: "mem", Mode: "memory", Size: o.Size,
			BlockSize: o.BlockSize, PhysBlock: max(o.BlockSize, pageSize), Align: 1,
			ReadOnly: o.ReadOnly, AtomicBlocks: 1, Discard: true, ZeroAfterDiscard: true,
		},
		mem:    mem,
		region: [1]*Region{{Mem: mem}},
		life:   NewLifetime(),
	}
	v.guard = NewGuard(o.Size, v.apply, v.finish)
	return v, nil
}

// machineMemory is how many bytes of memory and swap the machine has: more than a volume can ever hold.
func machineMemory() int64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return math.MaxInt64
	}
	return int64((s.Totalram + s.Totalswap) * uint64(s.Unit))
}

// pageSize is the unit in which memory is freed: 4 KiB with amd64, and with arm64 what the kernel was made for, up to
// 64 KiB.
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
	v.life.Leave()
	r.End(err)
}

func (v *memory) finish(r *Request) { v.end(r, nil) }

// apply is one piece of a request.
func (v *memory) apply(r *Request, off, n int64) {
	piece := v.mem[off : off+n]
	switch r.Op {
	case OpRead:
		r.CopyIn(piece, off-r.Offset)
	case OpWrite:
		r.CopyOut(piece, off-r.Offset)
	default:
		if n < stripeSize {
			clear(piece)
		} else {
			_ = v.free(off, n)
		}
	}
}

// drop zeroes a range. A view may see a discard, page by page, but not half of a block that
// is zeroed.
func (v *memory) drop(r *Request) {
	if r.Op == OpDiscard {
		_ = v.guard.Exclude(r.Offset, r.Length, v.free)
		v.end(r, nil)
		return
	}
	if v.guard.Write(r) {
		v.end(r, nil)
	}
}

// free zeroes a range and gives its whole pages back.
func (v *memory) free(off, n int64) error {
	end := off + n
	from, to := wholePages(off, end, int64(pageSize))
	if from < to && unix.Madvise(v.mem[from:to], unix.MADV_DONTNEED) == nil {
		clear(v.mem[off:from])
		clear(v.mem[to:end])
		return nil
	}
	clear(v.mem[off:end])
	return nil
}

// wholePages is what of a range is whole pages, if from is less than to. Madvise has to be told exactly: it refuses a
// beginning within a page, but of an end within one it makes the page's end.
func wholePages(off, end, page int64) (from, to int64) {
	return (off + page - 1) &^ (page - 1), end &^ (page - 1)
}

func (v *memory) Regions() []*Region { return v.region[:] }

// Prefetch fetches where the range begins. A view touches nothing, but who sends it does.
func (v *memory) Prefetch(op Op, offset, length int64) {
	if !v.life.Enter() {
		return
	}
	if CheckRange(&v.info, v.info.Size, op, offset, length) == nil {
		prefetch.Start(v.mem[offset : offset+length])
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
	return append(segs, Segment{Region: v.region[0], Bytes: v.mem[offset : offset+length : offset+length]}), t, nil
}

func (v *memory) Release(t ViewToken) {
	v.guard.Release(t)
	v.life.Leave()
}

func (v *memory) Close() error {
	if !v.life.Close() {
		return v.info.Closed("close")
	}
	return unix.Munmap(v.mem)
}
