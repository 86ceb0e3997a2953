package wire

import (
	"testing"
	"time"
)

func TestRNRTimer(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0:  655360 * time.Microsecond,
		1:  10 * time.Microsecond,
		5:  60 * time.Microsecond,
		14: 1280 * time.Microsecond,
		18: 5120 * time.Microsecond,
		31: 491520 * time.Microsecond,
	} {
		if got := RNRTimer(code); got != want {
			t.Errorf("RNRTimer(%d) = %v, want %v", code, got, want)
		}
	}
	for code := uint8(2); code < 32; code++ {
		if RNRTimer(code) <= RNRTimer(code-1) {
			t.Errorf("RNRTimer(%d) = %v doesn't exceed its predecessor", code, RNRTimer(code))
		}
	}
}

func TestAckTimeout(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0:  0,
		1:  8192 * time.Nanosecond,
		14: 67108864 * time.Nanosecond,
		17: 536870912 * time.Nanosecond,
		31: 8796093022208 * time.Nanosecond,
	} {
		if got := AckTimeout(code); got != want {
			t.Errorf("AckTimeout(%d) = %v, want %v", code, got, want)
		}
	}
}
