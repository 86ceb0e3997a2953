package persist

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	const line64 = 8 << 8 // EBX of leaf 1: 8 quadwords
	for _, x := range []struct {
		edx1, ebx7 uint32
		name       string
	}{
		{bitCLFSH, bitCLWB | bitCLFLUSHOPT, "CLWB"},
		{bitCLFSH, bitCLWB, "CLWB"},
		{bitCLFSH, bitCLFLUSHOPT, "CLFLUSHOPT"},
		{bitCLFSH, 0, "CLFLUSH"},
	} {
		if f := choose(line64, x.edx1, x.ebx7); f == nil || f.name != x.name || f.line != 64 {
			t.Errorf("%+v: %+v", x, f)
		}
	}
	if choose(0, 0, bitCLWB) != nil {
		t.Error("an instruction on a processor without CLFLUSH")
	}
}

// TestFlusherIsBest: the instruction is the best of those that Linux finds in the processor.
func TestFlusherIsBest(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	flags := regexp.MustCompile(`(?m)^flags\s*:.*$`).Find(info)
	if err != nil || flags == nil {
		t.Skipf("Linux doesn't tell: %v", err)
	}
	for _, name := range []string{"CLWB", "CLFLUSHOPT", "CLFLUSH"} {
		if strings.Contains(string(flags)+" ", " "+strings.ToLower(name)+" ") {
			if f := flusher(); f == nil || f.name != name {
				t.Errorf("%+v, want %s", f, name)
			}
			return
		}
	}
	if f := flusher(); f != nil {
		t.Errorf("%s, and there is none", f.name)
	}
}

// TestInstructions runs every one that this processor has.
func TestInstructions(t *testing.T) {
	mem := mapped(t, 4096)
	mem[100] = 7
	_, ebx1, _, edx1 := cpuid(1, 0)
	_, ebx7, _, _ := cpuid(7, 0)
	for _, mask := range []uint32{bitCLWB, bitCLFLUSHOPT, 0} {
		f := choose(ebx1, edx1, ebx7&mask)
		f.persist(mem)
		if mem[100] != 7 {
			t.Errorf("%s lost a byte", f.name)
		}
	}
}
