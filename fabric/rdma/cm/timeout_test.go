package cm

import (
	"testing"
	"time"
)

func TestCodeDuration(t *testing.T) {
	for code, ms := range map[uint8]int{0: 1, 8: 1, 9: 2, 16: 256, 17: 512, 18: 1024, 20: 4096, 24: 65536, 31: 1 << 23} {
		if got := codeDuration(code); got != time.Duration(ms)*time.Millisecond {
			t.Errorf("code %d: %v, want %d ms", code, got, ms)
		}
	}
	if got := 2*codeDuration(packetLifeCode) + codeDuration(responseCode); got != reqInterval {
		t.Errorf("REQ interval %v, want %v", got, reqInterval)
	}
}

// What Linux makes of the ACK delays of rxe and mlx5 (from the REQs and QPs in captures), and the edge cases of the
// rounding.
func TestACKTimeout(t *testing.T) {
	for _, c := range []struct{ delay, life, want uint8 }{
		{15, 16, 17}, {16, 16, 18}, {17, 16, 18}, {18, 16, 19}, {19, 16, 19}, {25, 16, 25}, {31, 16, 31}, {31, 31, 31}, {0, 16, 17},
	} {
		if got := ackTimeout(c.delay, c.life); got != c.want {
			t.Errorf("f(%d, %d) = %d, want %d", c.delay, c.life, got, c.want)
		}
	}
}

// What rdma_cm made of ports in a capture (the first REQ of 6.12/rdma-02-connect in mad/testdata/linux.txt).
func TestFlowLabel(t *testing.T) {
	if got := flowLabel(0xae9e, 4420); got != 0x53666 {
		t.Errorf("flow label %#x, want 0x53666", got)
	}
}

func TestRetransmitInterval(t *testing.T) {
	for code, want := range map[uint8]time.Duration{0: minRetransmit, 20: 4096 * time.Millisecond, 31: maxRetransmit} {
		if got := retransmitInterval(code); got != want {
			t.Errorf("code %d: %v, want %v", code, got, want)
		}
	}
}
