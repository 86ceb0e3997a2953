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
// Unless to is nil, p is copied there with it. Whole lines of to are written past the caches, without being fetched from
// where they were before; who tells others of them calls Fence first. Behind the first (len(p)-1)%16+1 bytes, four
// at least, to's addresses are multiples of 16.
//
//go:noescape
func crcFold(state uint32, ones uint64, p []byte, next, to unsafe.Pointer) uint32

// Fence has all that was copied so far be in memory before anything that is written from now on.
func Fence()

// cpuid asks the processor about itself.
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)

func cpuid7ECX() uint32 {
	_, _, ecx, _ := cpuid(7, 0)
	return ecx
}

// hasFold says whether the processor multiplies polynomials 256 bits at a time, which is about
// twice as fast as the 128 bits of hash/crc32.
var hasFold = cpu.X86.HasAVX2 && cpu.X86.HasPCLMULQDQ && cpuid7ECX()&cpuidVPCLMULQDQ != 0

// hasWideFold says whether it does 512 bits at a time too, and the system saves such registers: half the time
// of 256 where the data is in the first-level cache.
var hasWideFold = hasFold && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ

// canStream says whether copies of what is summed go past the caches: another processor reads them next, which had the
// lines last. On an AMD EPYC that takes a third to four fifths of the time; elsewhere it isn't known to pay.
var canStream = hasFold && isAMD()

func isAMD() bool {
	_, b, c, d := cpuid(0, 0)
	return b == 0x68747541 && d == 0x69746e65 && c == 0x444d4163 // AuthenticAMD
}

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

// crcCopy is crcUpdate that copies p to to, which is as long; past the caches, where that pays.
func crcCopy(state uint32, to, p, next []byte) uint32 {
	const long = 512 // from there on most of to is whole lines
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

// fold is crcFold that fetches no more than next, but for a little, and copies nothing.
func fold(state uint32, ones uint64, p, next []byte) uint32 {
	if n := spare(p, next); n > 0 {
		state = crcFold(state, ones, p[:n], start(next), nil)
		p, ones, next = p[n:], 0, nil
	}
	return crcFold(state, ones, p, start(next), nil)
}

// spare is how much of p next is to be fetched with, where p is longer than that by more than a little, and else 0.
func spare(p, next []byte) int {
	const little = 1 << 10
	if n := (len(next) + 15) &^ 15; len(p)-n >= little {
		return n
	}
	return 0
}

func start(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

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
