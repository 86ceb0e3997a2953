package wire

import (
	"hash/crc32"

	"golang.org/x/sys/cpu"
)

// crcFold carries all of p, a multiple of 16 bytes and at least 128, into the 16 bytes lo and
// hi: the state after p is the state after these from a state of zero.
//
//go:noescape
func crcFold(state uint32, p []byte) (lo, hi uint64)

// cpuid7ECX is the ECX of CPUID leaf 7.
func cpuid7ECX() uint32

// hasFold says whether the processor multiplies polynomials 256 bits at a time, which is about
// twice as fast as the 128 bits of hash/crc32.
var hasFold = cpu.X86.HasAVX2 && cpu.X86.HasPCLMULQDQ && cpuid7ECX()&cpuidVPCLMULQDQ != 0

const (
	cpuidVPCLMULQDQ = 1 << 10
	foldMin         = 128
	foldBlock       = 16
)

// crcLongUpdate is crcUpdate for long p.
func crcLongUpdate(state uint32, p []byte) uint32 {
	if !hasFold || len(p) < foldMin {
		return ^crc32.Update(^state, crc32.IEEETable, p)
	}
	n := len(p) &^ (foldBlock - 1)
	lo, hi := crcFold(state, p[:n])
	state = crcWord(crcWord(0, lo), hi)
	return crcShort(state, p[n:])
}
