package wire

import (
	"bytes"
	"fmt"
	"math/bits"
	"os"
	"testing"
)

// TestFoldConstants computes the constants that the assembly says it has.
func TestFoldConstants(t *testing.T) {
	source, err := os.ReadFile("crc_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	power := func(n int) uint64 { // x^n modulo P, reflected, shifted left by one
		const poly = 0x04c11db7
		r := uint32(1)
		for range n {
			r = r<<1 ^ poly*(r>>31)
		}
		return uint64(bits.Reverse32(r)) << 1
	}
	if line := fmt.Sprintf("DATA fold64<>+0(SB)/8, $%#x\n", power(64)); !bytes.Contains(source, []byte(line)) {
		t.Errorf("crc_amd64.s lacks %q", line)
	}
	for _, d := range []int{128, 256, 1024} {
		for _, line := range []string{
			fmt.Sprintf("DATA fold%d<>+0(SB)/8, $%#x\n", d, power(d+32)),
			fmt.Sprintf("DATA fold%d<>+8(SB)/8, $%#x\n", d, power(d-32)),
		} {
			if !bytes.Contains(source, []byte(line)) {
				t.Errorf("crc_amd64.s lacks %q", line)
			}
		}
	}
}

// TestCRCWithoutFold runs the comparison as on a processor without VPCLMULQDQ.
func TestCRCWithoutFold(t *testing.T) {
	if !hasFold {
		t.Log("this processor has no VPCLMULQDQ: the folding code is not tested here")
	}
	defer func(v bool) { hasFold = v }(hasFold)
	hasFold = false
	TestCRCEveryLength(t)
}
