package persist

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

//go:noescape
func dccvap(p unsafe.Pointer, n, line uintptr)

//go:noescape
func dccvac(p unsafe.Pointer, n, line uintptr)

// ctr reads CTR_EL0, the cache type register.
func ctr() uint64

// flusher gives the processor's way to write lines back: DC CVAP, to the point of
// persistence (Armv8.2); else DC CVAC, to the point of coherency, which is as far as an older
// processor's memory reaches. Either waits for what it has begun (DSB), and leaves nothing to a fence: a processor
// waits for its own instructions only, and the goroutine may be on another one by then.
func flusher() *lineFlusher {
	line := lineSize(ctr())
	f := &lineFlusher{line: line, fence: func() {}}
	if cpu.ARM64.HasDCPOP {
		f.name, f.flush = "DC CVAP", func(p unsafe.Pointer, n uintptr) { dccvap(p, n, line) }
	} else {
		f.name, f.flush = "DC CVAC", func(p unsafe.Pointer, n uintptr) { dccvac(p, n, line) }
	}
	return f
}

// lineSize is the smallest data cache line: DminLine, bits 19:16, the log2 of its 4-byte words.
func lineSize(ctr uint64) uintptr { return 4 << (ctr >> 16 & 0xf) }
