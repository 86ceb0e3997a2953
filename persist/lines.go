package persist

import "unsafe"

// lineFlusher writes the cache lines of a range back to memory.
type lineFlusher struct {
	name string // the instruction
	line uintptr
	// flush writes back n lines from the one at p on; p is a multiple of line. The data isn't durable before a
	// subsequent fence, on any processor.
	flush func(p unsafe.Pointer, n uintptr)
	fence func()
	// stream copies n bytes to dst, bypassing the caches; dst and n are multiples of line. After the fence they are
	// durable, without a flush. It is nil if the processor has no such stores.
	stream func(dst, src unsafe.Pointer, n uintptr)
}

// streamFrom is the length from which a copy bypasses the caches; docs/pmem.md says what that gains.
const streamFrom = 4096

// persist makes the bytes of b durable.
func (f *lineFlusher) persist(b []byte) {
	f.writeBack(b)
	f.fence()
}

// writeBack flushes the lines of b.
func (f *lineFlusher) writeBack(b []byte) {
	if len(b) == 0 {
		return
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	before, n := f.span(uintptr(p), uintptr(len(b)))
	f.flush(unsafe.Add(p, -int(before)), n)
}

// store copies src to dst, which is as long. It isn't durable before a subsequent fence.
func (f *lineFlusher) store(dst, src []byte) {
	if f.stream == nil || len(dst) < streamFrom {
		copy(dst, src)
		f.writeBack(dst)
		return
	}
	p := unsafe.Pointer(unsafe.SliceData(dst))
	head := int(-uintptr(p) & (f.line - 1))
	whole := (len(dst) - head) &^ int(f.line-1)
	f.stream(unsafe.Add(p, head), unsafe.Pointer(&src[head]), uintptr(whole))
	tail := head + whole
	copy(dst[:head], src)
	copy(dst[tail:], src[tail:])
	f.writeBack(dst[:head])
	f.writeBack(dst[tail:])
}

// span returns how far before addr its line begins, and how many lines n bytes from addr touch.
func (f *lineFlusher) span(addr, n uintptr) (before, lines uintptr) {
	before = addr & (f.line - 1)
	return before, (before + n + f.line - 1) / f.line
}
