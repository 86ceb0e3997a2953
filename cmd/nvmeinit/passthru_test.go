package main

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// TestRawFields: each field of a raw command is what its flag says, and the others are 0. Dword n is at byte 4n.
func TestRawFields(t *testing.T) {
	var f rawFlags
	fl := cli.NewFlags()
	f.add(fl)
	given := []string{"--opcode=0xc1", "--nsid=7"}
	want := [16]uint32{0: 0xc1, 1: 7}
	for _, n := range []int{2, 3, 10, 11, 12, 13, 14, 15} {
		want[n] = 0x01010101 * uint32(n)
		given = append(given, fmt.Sprintf("--cdw%d=%#x", n, want[n]))
	}
	if err := fl.Parse(given); err != nil {
		t.Fatal(err)
	}
	cmd := f.command()
	for n := range want {
		if got := binary.LittleEndian.Uint32(cmd[4*n:]); got != want[n] {
			t.Errorf("dword %d is %#x, want %#x", n, got, want[n])
		}
	}
}
