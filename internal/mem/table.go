package mem

import (
	"slices"
	"unsafe"
)

// table lists chunks by address. It is never modified, only replaced.
type table struct {
	bases  []uintptr
	chunks []*chunk
}

func baseOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// find returns the chunk that contains all of buf, and the offset.
func (t *table) find(buf []byte) (c *chunk, offset int, ok bool) {
	if cap(buf) == 0 {
		return nil, 0, false
	}
	p := baseOf(buf)
	lo, hi := 0, len(t.bases)
	for lo < hi {
		if mid := (lo + hi) / 2; t.bases[mid] <= p {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return nil, 0, false
	}
	c = t.chunks[lo-1]
	off := p - t.bases[lo-1]
	if off >= uintptr(len(c.mem)) || uintptr(len(buf)) > uintptr(len(c.mem))-off {
		return nil, 0, false
	}
	return c, int(off), true
}

func (t *table) with(c *chunk) *table {
	base := baseOf(c.mem)
	i, _ := slices.BinarySearch(t.bases, base)
	return &table{
		bases:  slices.Insert(slices.Clone(t.bases), i, base),
		chunks: slices.Insert(slices.Clone(t.chunks), i, c),
	}
}

func (t *table) without(c *chunk) *table {
	i := slices.Index(t.chunks, c)
	return &table{
		bases:  slices.Delete(slices.Clone(t.bases), i, i+1),
		chunks: slices.Delete(slices.Clone(t.chunks), i, i+1),
	}
}
