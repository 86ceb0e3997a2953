//go:build amd64 || arm64

package prefetch

import "unsafe"

// Start fetches the first lines of b, 256 bytes. For a reader that continues in order, the processor then fetches the
// rest by itself.
func Start(b []byte) { lines(unsafe.Pointer(unsafe.SliceData(b))) }

// lines fetches four lines of 64 bytes.
//
//go:noescape
func lines(p unsafe.Pointer)

// most is the most that Whole and ForWrite fetch: a part of the first-level cache.
const most = 4 << 10

// Whole fetches b, or its first 4 KiB, for a reader that is about to read all of it and needs the rest at once, since
// it does little with each byte.
func Whole(b []byte) {
	if len(b) > 0 {
		span(unsafe.Pointer(unsafe.SliceData(b)), uintptr(min(len(b), most)))
	}
}

// ForWrite fetches b, or its first 4 KiB, for writing: lines that another processor holds are taken from it now.
func ForWrite(b []byte) {
	if len(b) > 0 {
		spanForWrite(unsafe.Pointer(unsafe.SliceData(b)), uintptr(min(len(b), most)))
	}
}

// span fetches the lines of n bytes, at least the first.
//
//go:noescape
func span(p unsafe.Pointer, n uintptr)

// spanForWrite is span for writing.
//
//go:noescape
func spanForWrite(p unsafe.Pointer, n uintptr)
