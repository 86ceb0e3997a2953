package persist

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pins counts the views of each block, and says with retired that the map names the block no
// more: it becomes free when the last view has gone. A block has a byte, and blocks that lie
// together in a word of eight change by one atomic operation.
type pins struct {
	words []atomic.Uint64
	mem   []byte
}

const (
	lanes      = 8                       // blocks in a word
	lows       = 0x0101_0101_0101_0101   // 1 in each byte
	retired    = 0x80                    // bit of a byte
	allRetired = uint64(lows) * retired  // it in each byte
	mostPins   = retired - 1             // views that a block has at most
	counts     = uint64(lows) * mostPins // the bits that count
)

// newPins makes the pins of n blocks, all zero. Memory is taken as it is used.
func newPins(n int) (p pins, err error) {
	words := (n + lanes - 1) / lanes
	p.mem, err = unix.Mmap(-1, 0, max(words, 1)*8, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return pins{}, err
	}
	p.words = unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(p.mem))), words)
	return p, nil
}

func (p *pins) close() error { return unix.Munmap(p.mem) }

// together is how many blocks from i on, at most n, lie in one word.
func together(i, n int) int { return min(n, lanes-i%lanes) }

// of gives the word of block i, and the lowest bits of the bytes of n blocks from it on, which
// lie together.
func (p *pins) of(i, n int) (word *atomic.Uint64, ones uint64) {
	return &p.words[i/lanes], lows >> (8 * (lanes - n)) << (8 * (i % lanes))
}

// pin keeps n blocks that lie together from being used again; the map may name them no more
// meanwhile. It returns false where one has as many views as can be counted.
func (p *pins) pin(i, n int) bool {
	w, ones := p.of(i, n)
	for {
		old := w.Load()
		if (old&counts+ones)&(ones*retired) != 0 {
			return false
		}
		if w.CompareAndSwap(old, old+ones) {
			return true
		}
	}
}

// unpin takes back one pin of each. Of those whose bit is set in what it returns the caller
// makes free blocks; block i has the lowest bit.
func (p *pins) unpin(i, n int) (freed uint8) {
	w, ones := p.of(i, n)
	for {
		old := w.Load()
		fresh := old - ones
		free := equal(fresh, allRetired) & (ones * retired)
		if w.CompareAndSwap(old, fresh&^free) {
			return gather(free) >> (i % lanes)
		}
	}
}

// retire says that no map names the blocks any more, and returns as unpin does.
func (p *pins) retire(i, n int) (freed uint8) {
	w, ones := p.of(i, n)
	for {
		old := w.Load()
		free := equal(old, 0) & (ones * retired)
		if w.CompareAndSwap(old, old|(ones*retired)&^free) {
			return gather(free) >> (i % lanes)
		}
	}
}

// equal sets the highest bit of each byte in which a and b are the same, and no other.
func equal(a, b uint64) uint64 {
	x := a ^ b
	return ^((x&counts + counts) | x | counts)
}

// gather makes a byte of the highest bits of eight.
func gather(x uint64) uint8 { return uint8(x >> 7 * 0x0102_0408_1020_4080 >> 56) }

// runs calls do with each run of bits that are set.
func runs(set uint8, do func(first, n int)) {
	for at := 0; set != 0; {
		skip := bits.TrailingZeros8(set)
		n := bits.TrailingZeros8(^(set >> skip))
		do(at+skip, n)
		at, set = at+skip+n, uint8(uint(set)>>(skip+n))
	}
}
