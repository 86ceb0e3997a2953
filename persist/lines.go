package persist

import "unsafe"

// lineFlusher writes the cache lines of a range back to memory.
type lineFlusher struct {
	name string // the instruction
	line uintptr
	// flush writes back n lines from the one at p on, p a multiple of line. A fence must
	// follow, on the same processor, before the data is durable.
	flush func(p unsafe.Pointer, n uintptr)
	fence func()
}

// persist makes the bytes of b durable.
func (f *lineFlusher) persist(b []byte) {
	if len(b) == 0 {
		return
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	before, n := f.span(uintptr(p), uintptr(len(b)))
	f.flush(unsafe.Add(p, -int(before)), n)
	f.fence()
}

// span tells how far before addr its line begins, and how many lines n bytes from addr touch.
func (f *lineFlusher) span(addr, n uintptr) (before, lines uintptr) {
	before = addr & (f.line - 1)
	return before, (before + n + f.line - 1) / f.line
}
