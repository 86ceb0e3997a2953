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

// flusher returns the processor's way to write lines back: DC CVAP, to the point of persistence (Armv8.2); else DC
// CVAC, to the point of coherency, which is as far as an older processor's memory reaches. Both wait for their own
// completion (DSB), and leave nothing to a fence: a processor waits only for its own instructions, and by then the
// goroutine may be on another one.
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

// lineSize returns the smallest data cache line: DminLine, bits 19:16, the log2 of its 4-byte words.
func lineSize(ctr uint64) uintptr { return 4 << (ctr >> 16 & 0xf) }
