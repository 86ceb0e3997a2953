package persist

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pins counts the views of each block, and records with retired that the map doesn't name the block any more: it
// becomes free when the last view has gone. A block has a byte, and adjacent blocks in a word of eight are changed by
// one atomic operation.
type pins struct {
	words []atomic.Uint64
	mem   []byte
}

const (
	lanes      = 8                       // blocks in a word
	lows       = 0x0101_0101_0101_0101   // 1 in each byte
	retired    = 0x80                    // bit of a byte
	allRetired = uint64(lows) * retired  // that bit in each byte
	mostPins   = retired - 1             // views that a block can have
	counts     = uint64(lows) * mostPins // the bits that count
)

// newPins returns the pins of n blocks, all zero. Memory is allocated as it is used.
func newPins(n int) (p pins, err error) {
	words := (n + lanes - 1) / lanes
	p.mem, err = unix.Mmap(-1, 0, words*8, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return pins{}, err
	}
	p.words = unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(p.mem))), words)
	return p, nil
}

func (p *pins) close() error { return unix.Munmap(p.mem) }

// together returns how many blocks from i on, up to n, lie in one word.
func together(i, n int) int { return min(n, lanes-i%lanes) }

// of returns the word of block i, and the lowest bits of the bytes of n blocks from it on, which lie in one word.
func (p *pins) of(i, n int) (word *atomic.Uint64, ones uint64) {
	return &p.words[i/lanes], lows >> (8 * (lanes - n)) << (8 * (i % lanes))
}

// pin keeps n blocks that lie in one word from being reused, even if the map stops naming them meanwhile. It returns
// false if one of them has the maximum number of views.
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

// unpin undoes one pin of each. The caller must free the blocks whose bits are set in the result; block i has the
// lowest bit.
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

// retire says that no map names the blocks any more, and returns the same as unpin.
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

// equal sets the highest bit of each byte in which a and b are equal, and no other.
func equal(a, b uint64) uint64 {
	x := a ^ b
	return ^((x&counts + counts) | x | counts)
}

// gather makes a byte of the highest bits of eight.
func gather(x uint64) uint8 { return uint8(x >> 7 * 0x0102_0408_1020_4080 >> 56) }

// runs calls do for each run of set bits.
func runs(set uint8, do func(first, n int)) {
	for at := 0; set != 0; {
		skip := bits.TrailingZeros8(set)
		n := bits.TrailingZeros8(^(set >> skip))
		do(at+skip, n)
		at, set = at+skip+n, uint8(uint(set)>>(skip+n))
	}
}
