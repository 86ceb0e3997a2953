package stream

import "unsafe"

// Line is the number of bytes that are stored as a unit.
const Line = 64

// from is the length from which a copy streams: for a shorter one, waiting for the last stores takes longer than
// fetching the lines.
const from = 1 << 10

// Copy is copy, past the caches as far as whole lines of dst are written. dst and src must not overlap.
func Copy(dst, src []byte) int {
	n := min(len(dst), len(src))
	if !available || n < from {
		return copy(dst, src)
	}
	p := unsafe.Pointer(unsafe.SliceData(dst))
	head := int(-uintptr(p) & (Line - 1))
	tail := head + (n-head)&^(Line-1)
	Lines(unsafe.Add(p, head), unsafe.Pointer(&src[head]), uintptr(tail-head))
	copy(dst[:head], src)
	copy(dst[tail:n], src[tail:n])
	return n
}
