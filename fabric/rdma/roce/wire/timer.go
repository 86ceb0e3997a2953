package wire

import "time"

// rnrTimerTable is IBTA table 45 in units of 10 µs.
var rnrTimerTable = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
	1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimer returns the minimum time that a receiver-not-ready NAK with this timer code asks the requester to wait; only
// the low five bits count (IBTA table 45). Code 0 is the longest, 655.36 ms.
func RNRTimer(code uint8) time.Duration {
	return time.Duration(rnrTimerTable[code&31]) * 10 * time.Microsecond
}

// AckTimeout returns the duration of a local ACK timeout or ACK delay code: 4.096 µs × 2^code, and no timeout (0) for
// code 0; only the low five bits count (IBTA 9.9.2.1.1, 11.2.4.2).
func AckTimeout(code uint8) time.Duration {
	if code &= 31; code == 0 {
		return 0
	}
	return 4096 << code
}
