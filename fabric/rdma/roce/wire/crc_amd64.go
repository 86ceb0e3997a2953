package wire

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// crcFold is the state after p, of at least 16 bytes and a multiple of four. The bits of ones count
// as ones in the first eight bytes, or the first four where a multiple of 16 bytes follows those. The processor
// fetches as much from next meanwhile, or p itself some way ahead where that is nil.
//
//go:noescape
func crcFold(state uint32, ones uint64, p []byte, next unsafe.Pointer) uint32

// cpuid7ECX is the ECX of CPUID leaf 7.
func cpuid7ECX() uint32

// hasFold says whether the processor multiplies polynomials 256 bits at a time, which is about
// twice as fast as the 128 bits of hash/crc32.
var hasFold = cpu.X86.HasAVX2 && cpu.X86.HasPCLMULQDQ && cpuid7ECX()&cpuidVPCLMULQDQ != 0

// hasWideFold says whether it does 512 bits at a time too, and the system saves such registers: half the time
// of 256 where the data is in the first-level cache.
var hasWideFold = hasFold && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ

const (
	cpuidVPCLMULQDQ = 1 << 10
	foldMin         = 16
)

// crcUpdate is the state after p. The processor fetches next meanwhile, or the first of it.
func crcUpdate(state uint32, p, next []byte) uint32 {
	odd := len(p) & 3
	if !hasFold || len(p)-odd < foldMin {
		return crcPortable(state, p)
	}
	return fold(crcShort(state, p[:odd]), 0, p[odd:], next)
}

// fold is crcFold that fetches no more than next, but for a little.
func fold(state uint32, ones uint64, p, next []byte) uint32 {
	const little = 1 << 10
	if n := (len(next) + 15) &^ 15; n > 0 && len(p)-n >= little {
		state = crcFold(state, ones, p[:n], unsafe.Pointer(unsafe.SliceData(next)))
		p, ones, next = p[n:], 0, nil
	}
	return crcFold(state, ones, p, unsafe.Pointer(unsafe.SliceData(next)))
}

// crcPacket is the state after p, which begins with a BTH. The processor fetches next meanwhile, or the first of it.
func crcPacket(state uint32, p, next []byte) uint32 {
	if !hasFold || len(p) < foldMin || len(p)&3 != 0 {
		return crcPacketPortable(state, p)
	}
	ones := uint64(maskByte4)
	if len(p)%16 == 4 { // byte 4 would be past what is taken first
		state, p, ones = crcHalfWord(state, binary.LittleEndian.Uint32(p)), p[4:], maskByte4>>32
	}
	return fold(state, ones, p, next)
}
