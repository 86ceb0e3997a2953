#include "textflag.h"

// func lines(p unsafe.Pointer)
TEXT ·lines(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	PRFM 64(R0), PLDL1KEEP
	PRFM 128(R0), PLDL1KEEP
	PRFM 192(R0), PLDL1KEEP
	RET

// func span(p unsafe.Pointer, n uintptr)
TEXT ·span(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD n+8(FP), R1
	ADD  R0, R1

next:
	PRFM (R0), PLDL1KEEP
	ADD  $64, R0
	CMP  R1, R0
	BLO  next
	RET

// func spanForWrite(p unsafe.Pointer, n uintptr)
TEXT ·spanForWrite(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD n+8(FP), R1
	ADD  R0, R1

next:
	PRFM (R0), PSTL1KEEP
	ADD  $64, R0
	CMP  R1, R0
	BLO  next
	RET
