#include "textflag.h"

// Folding constants of the reflected polynomial: to carry 128 bits over a distance of D bits,
// the low half is multiplied by x^(D+32) and the high half by x^(D-32), both modulo P,
// bit-reflected and shifted left by one. TestFoldConstants computes them.

DATA fold2048<>+0(SB)/8, $0x11542778a
DATA fold2048<>+8(SB)/8, $0x1322d1430
GLOBL fold2048<>(SB), RODATA|NOPTR, $16

DATA fold1024<>+0(SB)/8, $0x1e88ef372
DATA fold1024<>+8(SB)/8, $0x14a7fe880
GLOBL fold1024<>(SB), RODATA|NOPTR, $16

DATA fold512<>+0(SB)/8, $0x154442bd4
DATA fold512<>+8(SB)/8, $0x1c6e41596
GLOBL fold512<>(SB), RODATA|NOPTR, $16

// For the four quarters of 512 bits: distances of 384, 256 and 128; the last quarter stays and isn't multiplied.
DATA foldQuarters<>+0(SB)/8, $0x3db1ecdc
DATA foldQuarters<>+8(SB)/8, $0x174359406
DATA foldQuarters<>+16(SB)/8, $0xf1da05aa
DATA foldQuarters<>+24(SB)/8, $0x15a546366
DATA foldQuarters<>+32(SB)/8, $0x1751997d0
DATA foldQuarters<>+40(SB)/8, $0xccaa009e
DATA foldQuarters<>+48(SB)/8, $0
DATA foldQuarters<>+56(SB)/8, $0
GLOBL foldQuarters<>(SB), RODATA|NOPTR, $64

DATA fold256<>+0(SB)/8, $0xf1da05aa
DATA fold256<>+8(SB)/8, $0x15a546366
GLOBL fold256<>(SB), RODATA|NOPTR, $16

DATA fold128<>+0(SB)/8, $0x1751997d0
DATA fold128<>+8(SB)/8, $0xccaa009e
GLOBL fold128<>(SB), RODATA|NOPTR, $16

// x^64 modulo P in the same form, to carry 32 bits over 64.
DATA fold64<>+0(SB)/8, $0x163cd6124
DATA fold64<>+8(SB)/8, $0
GLOBL fold64<>(SB), RODATA|NOPTR, $16

// P and the quotient of x^64 by P, bit-reflected, for Barrett's reduction.
DATA barrett<>+0(SB)/8, $0x1db710641
DATA barrett<>+8(SB)/8, $0x1f7011641
GLOBL barrett<>(SB), RODATA|NOPTR, $16

DATA low32<>+0(SB)/8, $0xffffffff
DATA low32<>+8(SB)/8, $0
GLOBL low32<>(SB), RODATA|NOPTR, $16

// The 16 bytes from byte r on are a shuffle mask that moves the first r bytes of a block to its end, after zeros.
DATA toEnd<>+0(SB)/8, $0x8080808080808080
DATA toEnd<>+8(SB)/8, $0x8080808080808080
DATA toEnd<>+16(SB)/8, $0x0706050403020100
DATA toEnd<>+24(SB)/8, $0x0f0e0d0c0b0a0908
GLOBL toEnd<>(SB), RODATA|NOPTR, $32

// func crcFold(state uint32, ones uint64, p []byte, next, to unsafe.Pointer) uint32
TEXT ·crcFold(SB), NOSPLIT, $0-60
	MOVL state+0(FP), AX
	MOVQ ones+8(FP), BX
	MOVQ p_base+16(FP), SI
	MOVQ p_len+24(FP), CX
	MOVQ to+48(FP), DI // 0 if nothing is copied

	// R8 is the distance from the summed data to the prefetched data: next, or else some way ahead.
	MOVQ    next+40(FP), DX
	MOVQ    DX, R10
	SUBQ    SI, R10
	MOVQ    $512, R8
	TESTQ   DX, DX
	CMOVQNE R10, R8

	VMOVDQU fold128<>(SB), X15

	// The first 1 to 16 bytes, so that whole blocks follow. Zeros before them don't change the result.
	LEAQ    -1(CX), DX
	ANDQ    $15, DX
	INCQ    DX
	VMOVDQU 0(SI), X0
	TESTQ   DI, DI
	JEQ     first
	VMOVDQU X0, 0(DI) // excess bytes are overwritten by the blocks that follow
	ADDQ    DX, DI

first:
	VMOVQ   BX, X1
	VPOR    X1, X0, X0
	VMOVD   AX, X1
	VPXOR   X1, X0, X0
	LEAQ    toEnd<>(SB), R10
	VPSHUFB 0(R10)(DX*1), X0, X0
	ADDQ    DX, SI
	SUBQ    DX, CX

	TESTQ DI, DI
	JEQ   aligned

	// Up to the start of a cache line in to.
toLine:
	TESTQ      $63, DI
	JEQ        aligned
	CMPQ       CX, $16
	JB         reduce
	VPCLMULQDQ $0x00, X15, X0, X4
	VPCLMULQDQ $0x11, X15, X0, X0
	VMOVDQU    0(SI), X1
	VMOVDQU    X1, 0(DI)
	VPXOR      X1, X4, X4
	VPXOR      X4, X0, X0
	ADDQ       $16, SI
	ADDQ       $16, DI
	SUBQ       $16, CX
	JMP        toLine

aligned:
	CMPQ CX, $256
	JB   narrow
	CMPB ·hasWideFold(SB), $1
	JNE  narrow

	VPCLMULQDQ      $0x00, X15, X0, X4
	VPCLMULQDQ      $0x11, X15, X0, X0
	VPXOR           X0, X4, X4
	VMOVDQU64       0(SI), Z0
	VMOVDQU64       64(SI), Z1
	VMOVDQU64       128(SI), Z2
	VMOVDQU64       192(SI), Z3
	ADDQ            $256, SI
	SUBQ            $256, CX
	VBROADCASTI32X4 fold2048<>(SB), Z14
	TESTQ           DI, DI
	JNE             copy256
	VPXORQ          Z4, Z0, Z0

by256:
	CMPQ       CX, $256
	JB         quarters
	VPCLMULQDQ $0x00, Z14, Z0, Z4
	VPCLMULQDQ $0x00, Z14, Z1, Z5
	VPCLMULQDQ $0x00, Z14, Z2, Z6
	VPCLMULQDQ $0x00, Z14, Z3, Z7
	VPCLMULQDQ $0x11, Z14, Z0, Z0
	VPCLMULQDQ $0x11, Z14, Z1, Z1
	VPCLMULQDQ $0x11, Z14, Z2, Z2
	VPCLMULQDQ $0x11, Z14, Z3, Z3
	VPTERNLOGQ $0x96, 0(SI), Z4, Z0
	VPTERNLOGQ $0x96, 64(SI), Z5, Z1
	VPTERNLOGQ $0x96, 128(SI), Z6, Z2
	VPTERNLOGQ $0x96, 192(SI), Z7, Z3
	PREFETCHT0 0(SI)(R8*1)
	PREFETCHT0 64(SI)(R8*1)
	PREFETCHT0 128(SI)(R8*1)
	PREFETCHT0 192(SI)(R8*1)
	ADDQ       $256, SI
	SUBQ       $256, CX
	JMP        by256

copy256:
	VMOVNTDQ  Z0, 0(DI)
	VMOVNTDQ  Z1, 64(DI)
	VMOVNTDQ  Z2, 128(DI)
	VMOVNTDQ  Z3, 192(DI)
	VPXORQ    Z4, Z0, Z0
	ADDQ      $256, DI

copyBy256:
	CMPQ       CX, $256
	JB         quarters
	VMOVDQU64  0(SI), Z8
	VMOVDQU64  64(SI), Z9
	VMOVDQU64  128(SI), Z10
	VMOVDQU64  192(SI), Z11
	VPCLMULQDQ $0x00, Z14, Z0, Z4
	VPCLMULQDQ $0x00, Z14, Z1, Z5
	VPCLMULQDQ $0x00, Z14, Z2, Z6
	VPCLMULQDQ $0x00, Z14, Z3, Z7
	VPCLMULQDQ $0x11, Z14, Z0, Z0
	VPCLMULQDQ $0x11, Z14, Z1, Z1
	VPCLMULQDQ $0x11, Z14, Z2, Z2
	VPCLMULQDQ $0x11, Z14, Z3, Z3
	VMOVNTDQ   Z8, 0(DI)
	VMOVNTDQ   Z9, 64(DI)
	VMOVNTDQ   Z10, 128(DI)
	VMOVNTDQ   Z11, 192(DI)
	VPTERNLOGQ $0x96, Z8, Z4, Z0
	VPTERNLOGQ $0x96, Z9, Z5, Z1
	VPTERNLOGQ $0x96, Z10, Z6, Z2
	VPTERNLOGQ $0x96, Z11, Z7, Z3
	PREFETCHT0 0(SI)(R8*1)
	PREFETCHT0 64(SI)(R8*1)
	PREFETCHT0 128(SI)(R8*1)
	PREFETCHT0 192(SI)(R8*1)
	ADDQ       $256, SI
	ADDQ       $256, DI
	SUBQ       $256, CX
	JMP        copyBy256

quarters:
	// Fold Z0 into Z1, Z1 into Z2, and Z2 into Z3, each over 512 bits, and the quarters of Z3 into its last one.
	VBROADCASTI32X4 fold512<>(SB), Z14
	VPCLMULQDQ      $0x00, Z14, Z0, Z4
	VPCLMULQDQ      $0x11, Z14, Z0, Z0
	VPTERNLOGQ      $0x96, Z0, Z4, Z1
	VPCLMULQDQ      $0x00, Z14, Z1, Z4
	VPCLMULQDQ      $0x11, Z14, Z1, Z1
	VPTERNLOGQ      $0x96, Z1, Z4, Z2
	VPCLMULQDQ      $0x00, Z14, Z2, Z4
	VPCLMULQDQ      $0x11, Z14, Z2, Z2
	VPTERNLOGQ      $0x96, Z2, Z4, Z3
	VMOVDQU64       foldQuarters<>(SB), Z14
	VPCLMULQDQ      $0x00, Z14, Z3, Z4
	VPCLMULQDQ      $0x11, Z14, Z3, Z5
	VPXORQ          Z5, Z4, Z4
	VEXTRACTI32X4   $3, Z3, X0
	VEXTRACTI64X4   $1, Z4, Y5
	VPXOR           Y5, Y4, Y4
	VEXTRACTI128    $1, Y4, X5
	VPXOR           X5, X4, X4
	VPXOR           X4, X0, X0

narrow:
	CMPQ CX, $128
	JB   by16

	VPCLMULQDQ     $0x00, X15, X0, X4
	VPCLMULQDQ     $0x11, X15, X0, X0
	VPXOR          X0, X4, X4
	VMOVDQU        0(SI), Y0
	VMOVDQU        32(SI), Y1
	VMOVDQU        64(SI), Y2
	VMOVDQU        96(SI), Y3
	ADDQ           $128, SI
	SUBQ           $128, CX
	VBROADCASTI128 fold1024<>(SB), Y14
	TESTQ          DI, DI
	JNE            copy128
	VPXOR          Y4, Y0, Y0

by128:
	CMPQ       CX, $128
	JB         together
	VPCLMULQDQ $0x00, Y14, Y0, Y4
	VPCLMULQDQ $0x00, Y14, Y1, Y5
	VPCLMULQDQ $0x00, Y14, Y2, Y6
	VPCLMULQDQ $0x00, Y14, Y3, Y7
	VPCLMULQDQ $0x11, Y14, Y0, Y0
	VPCLMULQDQ $0x11, Y14, Y1, Y1
	VPCLMULQDQ $0x11, Y14, Y2, Y2
	VPCLMULQDQ $0x11, Y14, Y3, Y3
	VPXOR      0(SI), Y4, Y4
	VPXOR      32(SI), Y5, Y5
	VPXOR      64(SI), Y6, Y6
	VPXOR      96(SI), Y7, Y7
	VPXOR      Y4, Y0, Y0
	VPXOR      Y5, Y1, Y1
	VPXOR      Y6, Y2, Y2
	VPXOR      Y7, Y3, Y3
	PREFETCHT0 0(SI)(R8*1)
	PREFETCHT0 64(SI)(R8*1)
	ADDQ       $128, SI
	SUBQ       $128, CX
	JMP        by128

copy128:
	VMOVNTDQ Y0, 0(DI)
	VMOVNTDQ Y1, 32(DI)
	VMOVNTDQ Y2, 64(DI)
	VMOVNTDQ Y3, 96(DI)
	VPXOR   Y4, Y0, Y0
	ADDQ    $128, DI

copyBy128:
	CMPQ       CX, $128
	JB         together
	VMOVDQU    0(SI), Y8
	VMOVDQU    32(SI), Y9
	VMOVDQU    64(SI), Y10
	VMOVDQU    96(SI), Y11
	VPCLMULQDQ $0x00, Y14, Y0, Y4
	VPCLMULQDQ $0x00, Y14, Y1, Y5
	VPCLMULQDQ $0x00, Y14, Y2, Y6
	VPCLMULQDQ $0x00, Y14, Y3, Y7
	VPCLMULQDQ $0x11, Y14, Y0, Y0
	VPCLMULQDQ $0x11, Y14, Y1, Y1
	VPCLMULQDQ $0x11, Y14, Y2, Y2
	VPCLMULQDQ $0x11, Y14, Y3, Y3
	VMOVNTDQ    Y8, 0(DI)
	VMOVNTDQ    Y9, 32(DI)
	VMOVNTDQ    Y10, 64(DI)
	VMOVNTDQ    Y11, 96(DI)
	VPXOR      Y8, Y4, Y4
	VPXOR      Y9, Y5, Y5
	VPXOR      Y10, Y6, Y6
	VPXOR      Y11, Y7, Y7
	VPXOR      Y4, Y0, Y0
	VPXOR      Y5, Y1, Y1
	VPXOR      Y6, Y2, Y2
	VPXOR      Y7, Y3, Y3
	PREFETCHT0 0(SI)(R8*1)
	PREFETCHT0 64(SI)(R8*1)
	ADDQ       $128, SI
	ADDQ       $128, DI
	SUBQ       $128, CX
	JMP        copyBy128

together:
	// Fold Y0 into Y1, Y1 into Y2, and Y2 into Y3, each over 256 bits.
	VBROADCASTI128 fold256<>(SB), Y14
	VPCLMULQDQ     $0x00, Y14, Y0, Y4
	VPCLMULQDQ     $0x11, Y14, Y0, Y0
	VPXOR          Y4, Y1, Y1
	VPXOR          Y0, Y1, Y1
	VPCLMULQDQ     $0x00, Y14, Y1, Y4
	VPCLMULQDQ     $0x11, Y14, Y1, Y1
	VPXOR          Y4, Y2, Y2
	VPXOR          Y1, Y2, Y2
	VPCLMULQDQ     $0x00, Y14, Y2, Y4
	VPCLMULQDQ     $0x11, Y14, Y2, Y2
	VPXOR          Y4, Y3, Y3
	VPXOR          Y2, Y3, Y3

	// Fold the low half of Y3 into the high one.
	VEXTRACTI128 $1, Y3, X0
	VPCLMULQDQ   $0x00, X15, X3, X4
	VPCLMULQDQ   $0x11, X15, X3, X3
	VPXOR        X4, X0, X0
	VPXOR        X3, X0, X0

by16:
	CMPQ       CX, $16
	JB         reduce
	VPCLMULQDQ $0x00, X15, X0, X4
	VPCLMULQDQ $0x11, X15, X0, X0
	VMOVDQU    0(SI), X1
	VPXOR      X1, X4, X4
	VPXOR      X4, X0, X0
	ADDQ       $16, SI
	SUBQ       $16, CX
	TESTQ      DI, DI
	JEQ        by16
	VMOVDQU    X1, 0(DI)
	ADDQ       $16, DI
	JMP        by16

reduce:
	// Fold the low 64 of the 128 bits over 96, which leaves 96; of these fold the low 32 over 64, which leaves 64.
	VMOVDQU    low32<>(SB), X3
	VPCLMULQDQ $0x10, X15, X0, X1
	VPSRLDQ    $8, X0, X0
	VPXOR      X1, X0, X0
	VPAND      X3, X0, X1
	VPCLMULQDQ $0x00, fold64<>(SB), X1, X1
	VPSRLDQ    $4, X0, X0
	VPXOR      X1, X0, X0

	// Barrett reduction: afterwards the upper 32 of these 64 bits are the remainder.
	VMOVDQU    barrett<>(SB), X2
	VPAND      X3, X0, X1
	VPCLMULQDQ $0x10, X2, X1, X1
	VPAND      X3, X1, X1
	VPCLMULQDQ $0x00, X2, X1, X1
	VPXOR      X1, X0, X0
	VPEXTRD    $1, X0, AX
	VZEROUPPER
	MOVL       AX, ret+56(FP)
	RET

// func Fence()
TEXT ·Fence(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	MOVL subleaf+4(FP), CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL BX, ebx+12(FP)
	MOVL CX, ecx+16(FP)
	MOVL DX, edx+20(FP)
	RET
