package wire

import (
	"encoding/binary"

	"golang.org/x/sys/cpu"
)

// crcFold is the state after p, of at least 16 bytes and a multiple of four. The bits of ones count
// as ones in the first eight bytes, or the first four where a multiple of 16 bytes follows those.
//
//go:noescape
func crcFold(state uint32, ones uint64, p []byte) uint32

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

// crcUpdate is the state after p.
func crcUpdate(state uint32, p []byte) uint32 {
	odd := len(p) & 3
	if !hasFold || len(p)-odd < foldMin {
		return crcPortable(state, p)
	}
	return crcFold(crcShort(state, p[:odd]), 0, p[odd:])
}

// crcPacket is the state after p, which begins with a BTH.
func crcPacket(state uint32, p []byte) uint32 {
	if !hasFold || len(p) < foldMin || len(p)&3 != 0 {
		return crcPacketPortable(state, p)
	}
	ones := uint64(maskByte4)
	if len(p)%16 == 4 { // byte 4 would be past what is taken first
		state, p, ones = crcHalfWord(state, binary.LittleEndian.Uint32(p)), p[4:], maskByte4>>32
	}
	return crcFold(state, ones, p)
}
