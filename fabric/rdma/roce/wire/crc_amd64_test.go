package wire

import (
	"bytes"
	"fmt"
	"math/bits"
	"os"
	"testing"
)

// TestFoldConstants computes the constants in the assembly code and compares them.
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
	for i, d := range []int{384, 256, 128} {
		for _, line := range []string{
			fmt.Sprintf("DATA foldQuarters<>+%d(SB)/8, $%#x\n", 16*i, power(d+32)),
			fmt.Sprintf("DATA foldQuarters<>+%d(SB)/8, $%#x\n", 16*i+8, power(d-32)),
		} {
			if !bytes.Contains(source, []byte(line)) {
				t.Errorf("crc_amd64.s lacks %q", line)
			}
		}
	}
	for _, d := range []int{128, 256, 512, 1024, 2048} {
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

// TestCRCWithLess runs the comparison as on processors that lack the widest instructions, or all of them.
func TestCRCWithLess(t *testing.T) {
	if !hasWideFold {
		t.Log("this processor lacks VPCLMULQDQ, or does it by 256 bits: code that needs more is not tested here")
	}
	defer func(fold, wide, stream bool) { hasFold, hasWideFold, canStream = fold, wide, stream }(hasFold, hasWideFold, canStream)
	canStream = hasFold // regardless of the processor's vendor
	t.Run("copying past the caches", TestCRCCopyEveryLength)
	hasWideFold = false
	t.Run("256 bits", TestCRCEveryLength)
	t.Run("256 bits, copying past the caches", TestCRCCopyEveryLength)
	canStream = false
	t.Run("copying", TestCRCCopyEveryLength)
	hasFold = false
	t.Run("none", TestCRCEveryLength)
	t.Run("none, copying", TestCRCCopyEveryLength)
}
