#include "textflag.h"

// func cpuid(leaf, sub uint32) (eax, ebx, ecx, edx uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	MOVL sub+4(FP), CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL BX, ebx+12(FP)
	MOVL CX, ecx+16(FP)
	MOVL DX, edx+20(FP)
	RET

// func clwb(p unsafe.Pointer, n, line uintptr)
TEXT ·clwb(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	MOVQ line+16(FP), DX

loop:
	TESTQ CX, CX
	JZ    done
	CLWB  (AX)
	ADDQ  DX, AX
	DECQ  CX
	JMP   loop

done:
	RET

// func clflushopt(p unsafe.Pointer, n, line uintptr)
TEXT ·clflushopt(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	MOVQ line+16(FP), DX

loop:
	TESTQ      CX, CX
	JZ         done
	CLFLUSHOPT (AX)
	ADDQ       DX, AX
	DECQ       CX
	JMP        loop

done:
	RET

// func clflush(p unsafe.Pointer, n, line uintptr)
TEXT ·clflush(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	MOVQ line+16(FP), DX

loop:
	TESTQ   CX, CX
	JZ      done
	CLFLUSH (AX)
	ADDQ    DX, AX
	DECQ    CX
	JMP     loop

done:
	RET

// func sfence()
TEXT ·sfence(SB), NOSPLIT, $0-0
	SFENCE
	RET
