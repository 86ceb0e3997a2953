package wire

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// crcFold returns the state after p, whose length is at least 16 bytes and a multiple of four. Bits that are set in
// ones count as ones in the first eight bytes of p, or in the first four if a multiple of 16 bytes follows those.
// Meanwhile the processor prefetches as many bytes from next or, if next is nil, p itself some way ahead.
//
// Unless to is nil, p is also copied there. Whole cache lines of to are written past the caches, without being fetched
// first; call Fence before telling others about them. After the first (len(p)-1)%16+1 bytes, which must be at least
// four, the addresses in to must be multiples of 16.
//
//go:noescape
func crcFold(state uint32, ones uint64, p []byte, next, to unsafe.Pointer) uint32

// Fence makes everything that was copied so far reach memory before anything that is written from now on.
func Fence()

// cpuid executes the CPUID instruction.
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)

func cpuid7ECX() uint32 {
	_, _, ecx, _ := cpuid(7, 0)
	return ecx
}

// hasFold reports whether the processor multiplies polynomials 256 bits at a time, which is about twice as fast as the
// 128 bits of hash/crc32.
var hasFold = cpu.X86.HasAVX2 && cpu.X86.HasPCLMULQDQ && cpuid7ECX()&cpuidVPCLMULQDQ != 0

// hasWideFold reports whether it also does 512 bits at a time, and the system saves such registers: that takes half the
// time of 256 bits if the data is in the first-level cache.
var hasWideFold = hasFold && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ

// canStream reports whether copies of summed data are written past the caches: the next reader is another processor,
// which also had the cache lines last. On an AMD EPYC that takes a third to four fifths of the time; elsewhere it isn't
// known to pay.
var canStream = hasFold && isAMD()

func isAMD() bool {
	_, b, c, d := cpuid(0, 0)
	return b == 0x68747541 && d == 0x69746e65 && c == 0x444d4163 // AuthenticAMD
}

const (
	cpuidVPCLMULQDQ = 1 << 10
	foldMin         = 16
)

// crcUpdate returns the state after p. Meanwhile the processor prefetches next, or the beginning of it.
func crcUpdate(state uint32, p, next []byte) uint32 {
	odd := len(p) & 3
	if !hasFold || len(p)-odd < foldMin {
		return crcPortable(state, p)
	}
	return fold(crcShort(state, p[:odd]), 0, p[odd:], next)
}

// crcCopy is crcUpdate but also copies p to to, which is as long; past the caches, if that pays.
func crcCopy(state uint32, to, p, next []byte) uint32 {
	const long = 512 // from this length on most of to is whole lines
	if !canStream || len(p) < long {
		copy(to, p)
		return crcUpdate(state, p, next)
	}
	odd := int(-uintptr(start(to)) & 3)
	state = crcShort(state, p[:odd])
	to, p = to[copy(to, p[:odd]):], p[odd:]
	lead := 16 - int(uintptr(start(to))&15) // 4, 8, 12 or 16
	if n := spare(p[lead:], next); n > 0 {
		n += lead
		state = crcFold(state, 0, p[:n], start(next), start(to))
		to, p, next, lead = to[n:], p[n:], nil, 0
	}
	whole := lead + (len(p)-lead)&^15
	if whole > 0 {
		state = crcFold(state, 0, p[:whole], start(next), start(to))
	}
	copy(to[whole:], p[whole:])
	return crcShort(state, p[whole:])
}

// fold is crcFold without a copy, and with little prefetching beyond next.
func fold(state uint32, ones uint64, p, next []byte) uint32 {
	if n := spare(p, next); n > 0 {
		state = crcFold(state, ones, p[:n], start(next), nil)
		p, ones, next = p[n:], 0, nil
	}
	return crcFold(state, ones, p, start(next), nil)
}

// spare returns how many bytes of p to process while next is prefetched, if p is longer than that by more than a
// little, and else 0.
func spare(p, next []byte) int {
	const little = 1 << 10
	if n := (len(next) + 15) &^ 15; len(p)-n >= little {
		return n
	}
	return 0
}

func start(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// crcPacket returns the state after p, which begins with a BTH. Meanwhile the processor prefetches next, or the
// beginning of it.
func crcPacket(state uint32, p, next []byte) uint32 {
	if !hasFold || len(p) < foldMin || len(p)&3 != 0 {
		return crcPacketPortable(state, p)
	}
	ones := uint64(maskByte4)
	if len(p)%16 == 4 { // byte 4 would not be in the bytes that are processed first
		state, p, ones = crcHalfWord(state, binary.LittleEndian.Uint32(p)), p[4:], maskByte4>>32
	}
	return fold(state, ones, p, next)
}
