package persist

import (
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/internal/stream"
)

// cpuid executes CPUID.
func cpuid(leaf, sub uint32) (eax, ebx, ecx, edx uint32)

//go:noescape
func clwb(p unsafe.Pointer, n, line uintptr)

//go:noescape
func clflushopt(p unsafe.Pointer, n, line uintptr)

//go:noescape
func clflush(p unsafe.Pointer, n, line uintptr)

func sfence()

// Bits of CPUID: leaf 1 EDX, leaf 7 EBX (Intel SDM volume 2A, CPUID).
const (
	bitCLFSH      = 1 << 19
	bitCLFLUSHOPT = 1 << 23
	bitCLWB       = 1 << 24
)

// flusher returns the processor's best way to write lines back: CLWB, which may keep them in the cache; CLFLUSHOPT,
// which drops them; CLFLUSH, which also waits for each. It returns nil if there is none. The fence may run on another
// processor: moving a goroutine there involves a locked instruction, which orders these instructions, and streamed
// stores, as a fence does.
func flusher() *lineFlusher {
	top, _, _, _ := cpuid(0, 0)
	_, ebx1, _, edx1 := cpuid(1, 0)
	var ebx7 uint32
	if top >= 7 {
		_, ebx7, _, _ = cpuid(7, 0)
	}
	return choose(ebx1, edx1, ebx7)
}

// choose evaluates the results of CPUID.
func choose(ebx1, edx1, ebx7 uint32) *lineFlusher {
	if edx1&bitCLFSH == 0 {
		return nil
	}
	f := &lineFlusher{line: uintptr(ebx1>>8&0xff) * 8, fence: sfence}
	line := f.line
	switch {
	case ebx7&bitCLWB != 0:
		f.name, f.flush = "CLWB", func(p unsafe.Pointer, n uintptr) { clwb(p, n, line) }
	case ebx7&bitCLFLUSHOPT != 0:
		f.name, f.flush = "CLFLUSHOPT", func(p unsafe.Pointer, n uintptr) { clflushopt(p, n, line) }
	default:
		f.name, f.flush = "CLFLUSH", func(p unsafe.Pointer, n uintptr) { clflush(p, n, line) }
	}
	if line == stream.Line {
		f.stream = stream.Lines
	}
	return f
}
