#include "textflag.h"

// func lines(p unsafe.Pointer)
TEXT ·lines(SB), NOSPLIT, $0-8
	MOVQ       p+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	PREFETCHT0 128(AX)
	PREFETCHT0 192(AX)
	RET

// func span(p unsafe.Pointer, n uintptr)
TEXT ·span(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	ADDQ AX, CX

next:
	PREFETCHT0 (AX)
	ADDQ       $64, AX
	CMPQ       AX, CX
	JB         next
	RET

// func spanForWrite(p unsafe.Pointer, n uintptr)
TEXT ·spanForWrite(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	ADDQ AX, CX

next:
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX), which the assembler doesn't know
	ADDQ $64, AX
	CMPQ AX, CX
	JB   next
	RET
