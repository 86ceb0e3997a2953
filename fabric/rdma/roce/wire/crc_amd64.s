#include "textflag.h"

// Folding constants of the reflected polynomial: to carry 128 bits over a distance of D bits,
// the low half is multiplied by x^(D+32) and the high half by x^(D-32), both modulo P,
// bit-reflected and shifted left by one. TestFoldConstants computes them.

DATA fold1024<>+0(SB)/8, $0x1e88ef372
DATA fold1024<>+8(SB)/8, $0x14a7fe880
GLOBL fold1024<>(SB), RODATA|NOPTR, $16

DATA fold256<>+0(SB)/8, $0xf1da05aa
DATA fold256<>+8(SB)/8, $0x15a546366
GLOBL fold256<>(SB), RODATA|NOPTR, $16

DATA fold128<>+0(SB)/8, $0x1751997d0
DATA fold128<>+8(SB)/8, $0xccaa009e
GLOBL fold128<>(SB), RODATA|NOPTR, $16

// func crcFold(state uint32, p []byte) (lo, hi uint64)
TEXT ·crcFold(SB), NOSPLIT, $0-48
	MOVL state+0(FP), AX
	MOVQ p_base+8(FP), SI
	MOVQ p_len+16(FP), CX

	VMOVD   AX, X4
	VMOVDQU 0(SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU 64(SI), Y2
	VMOVDQU 96(SI), Y3
	VPXOR   Y4, Y0, Y0
	ADDQ    $128, SI
	SUBQ    $128, CX

	VBROADCASTI128 fold1024<>(SB), Y15

by128:
	CMPQ       CX, $128
	JB         together
	VPCLMULQDQ $0x00, Y15, Y0, Y4
	VPCLMULQDQ $0x00, Y15, Y1, Y5
	VPCLMULQDQ $0x00, Y15, Y2, Y6
	VPCLMULQDQ $0x00, Y15, Y3, Y7
	VPCLMULQDQ $0x11, Y15, Y0, Y0
	VPCLMULQDQ $0x11, Y15, Y1, Y1
	VPCLMULQDQ $0x11, Y15, Y2, Y2
	VPCLMULQDQ $0x11, Y15, Y3, Y3
	VPXOR      0(SI), Y4, Y4
	VPXOR      32(SI), Y5, Y5
	VPXOR      64(SI), Y6, Y6
	VPXOR      96(SI), Y7, Y7
	VPXOR      Y4, Y0, Y0
	VPXOR      Y5, Y1, Y1
	VPXOR      Y6, Y2, Y2
	VPXOR      Y7, Y3, Y3
	ADDQ       $128, SI
	SUBQ       $128, CX
	JMP        by128

together:
	// Y0 into Y1 into Y2 into Y3, each 256 bits further on.
	VBROADCASTI128 fold256<>(SB), Y15
	VPCLMULQDQ     $0x00, Y15, Y0, Y4
	VPCLMULQDQ     $0x11, Y15, Y0, Y0
	VPXOR          Y4, Y1, Y1
	VPXOR          Y0, Y1, Y1
	VPCLMULQDQ     $0x00, Y15, Y1, Y4
	VPCLMULQDQ     $0x11, Y15, Y1, Y1
	VPXOR          Y4, Y2, Y2
	VPXOR          Y1, Y2, Y2
	VPCLMULQDQ     $0x00, Y15, Y2, Y4
	VPCLMULQDQ     $0x11, Y15, Y2, Y2
	VPXOR          Y4, Y3, Y3
	VPXOR          Y2, Y3, Y3

	// The low half of Y3 into the high one.
	VMOVDQU      fold128<>(SB), X15
	VEXTRACTI128 $1, Y3, X0
	VPCLMULQDQ   $0x00, X15, X3, X4
	VPCLMULQDQ   $0x11, X15, X3, X3
	VPXOR        X4, X0, X0
	VPXOR        X3, X0, X0

by16:
	CMPQ       CX, $16
	JB         done
	VPCLMULQDQ $0x00, X15, X0, X4
	VPCLMULQDQ $0x11, X15, X0, X0
	VPXOR      0(SI), X4, X4
	VPXOR      X4, X0, X0
	ADDQ       $16, SI
	SUBQ       $16, CX
	JMP        by16

done:
	VMOVQ   X0, AX
	VPEXTRQ $1, X0, BX
	VZEROUPPER
	MOVQ    AX, lo+32(FP)
	MOVQ    BX, hi+40(FP)
	RET

// func cpuid7ECX() uint32
TEXT ·cpuid7ECX(SB), NOSPLIT, $0-4
	MOVL $7, AX
	XORL CX, CX
	CPUID
	MOVL CX, ret+0(FP)
	RET
