#include "textflag.h"

// func dccvap(p unsafe.Pointer, n, line uintptr)
TEXT ·dccvap(SB), NOSPLIT, $0-24
	MOVD p+0(FP), R0
	MOVD n+8(FP), R1
	MOVD line+16(FP), R2

loop:
	CBZ R1, done
	DC  CVAP, R0
	ADD R2, R0
	SUB $1, R1
	B   loop

done:
	DSB $15 // SY
	RET

// func dccvac(p unsafe.Pointer, n, line uintptr)
TEXT ·dccvac(SB), NOSPLIT, $0-24
	MOVD p+0(FP), R0
	MOVD n+8(FP), R1
	MOVD line+16(FP), R2

loop:
	CBZ R1, done
	DC  CVAC, R0
	ADD R2, R0
	SUB $1, R1
	B   loop

done:
	DSB $15 // SY
	RET

// func ctr() uint64
TEXT ·ctr(SB), NOSPLIT, $0-8
	MRS  CTR_EL0, R0
	MOVD R0, ret+0(FP)
	RET
