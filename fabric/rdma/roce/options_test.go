package roce

import "testing"

// TestOptionsGolden pins the numbers of the options, which are a quarter of those in docs/recovery.md: CM has its role
// in the lowest two bits.
func TestOptionsGolden(t *testing.T) {
	for name, x := range map[string][2]uint32{
		"no ICRC":                        {OptionNoICRC, 4},
		"long SENDs, and along a WRITE":  {OptionLongSend | OptionWriteSend, 24},
		"jumbo data":                     {OptionJumboData, 32},
		"long data":                      {OptionLongData, 64},
		"acknowledgements that go along": {OptionAckAlong, 128},
	} {
		if x[0]*4 != x[1] {
			t.Errorf("%s: %d, want %d", name, x[0]*4, x[1])
		}
	}
	if OptionLongSend != 2 || vendorID != 0x4e5641 {
		t.Errorf("long SENDs are %d, the vendor is %#x", OptionLongSend, vendorID)
	}
}
