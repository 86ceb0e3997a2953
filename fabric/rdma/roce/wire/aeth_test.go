package wire

import "testing"

func TestSyndromes(t *testing.T) {
	for _, c := range []struct {
		s        Syndrome
		ack, rnr bool
		text     string
	}{
		{0x1f, true, false, "ACK"},
		{0x00, true, false, "ACK (credit code 0)"},
		{0x0c, true, false, "ACK (credit code 12)"},
		{0x20, false, true, "RNR NAK (655.36ms)"},
		{0x2e, false, true, "RNR NAK (1.28ms)"},
		{0x60, false, false, "NAK PSN sequence error"},
		{0x61, false, false, "NAK invalid request"},
		{0x62, false, false, "NAK remote access error"},
		{0x63, false, false, "NAK remote operational error"},
		{0x64, false, false, "NAK invalid RD request"},
		{0x65, false, false, "reserved syndrome 0x65"},
		{0x40, false, false, "reserved syndrome 0x40"},
		{0x80, false, false, "reserved syndrome 0x80"},
	} {
		if c.s.IsACK() != c.ack || c.s.IsRNR() != c.rnr {
			t.Errorf("%#02x: ACK %v, RNR %v", uint8(c.s), c.s.IsACK(), c.s.IsRNR())
		}
		if got := c.s.String(); got != c.text {
			t.Errorf("%#02x is %q, want %q", uint8(c.s), got, c.text)
		}
	}
	if s := RNRNAK(14); s != 0x2e || s.RNRTimer() != 14 {
		t.Errorf("RNRNAK(14) = %#02x with timer %d", uint8(s), s.RNRTimer())
	}
}
