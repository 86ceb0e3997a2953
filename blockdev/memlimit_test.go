package blockdev

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGroupLimit: the smallest limit of a program's control groups counts, each with the swap that it allows.
func TestGroupLimit(t *testing.T) {
	const mib, swap = 1 << 20, 8 << 20
	root := t.TempDir()
	for name, content := range map[string]string{
		"service/memory.max":            "67108864\n", // 64 MiB
		"service/part/memory.max":       "max\n",
		"service/part/memory.swap.max":  "0\n",
		"service/small/memory.max":      "33554432\n", // 32 MiB
		"service/small/memory.swap.max": "4194304\n",  // 4 MiB
		"free/memory.max":               "max\n",
		"free/memory.swap.max":          "max\n",
	} {
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for group, want := range map[string]int64{
		"0::/service\n":                       (64 + 8) * mib,
		"0::/service/part\n":                  (64 + 8) * mib,
		"0::/service/small\n":                 (32 + 4) * mib,
		"9:memory:/free\n0::/service/small\n": (32 + 4) * mib,
		"0::/free\n":                          math.MaxInt64,
		"0::/\n":                              math.MaxInt64,
		"0::/gone\n":                          math.MaxInt64,
		"9:memory:/service/small\n":           math.MaxInt64,
		"":                                    math.MaxInt64,
	} {
		if n := groupLimit(root, group, swap); n != want {
			t.Errorf("%q: %d bytes, want %d", group, n, want)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "memory.max"), []byte("16777216"), 0o600); err != nil { // as in a container
		t.Fatal(err)
	}
	if n := groupLimit(root, "0::/free\n", swap); n != (16+8)*mib {
		t.Errorf("%d bytes within 24 MiB", n)
	}
}

// TestMemoryTooLarge: a volume that can't ever be written completely isn't made.
func TestMemoryTooLarge(t *testing.T) {
	_, err := NewMemory(Options{Size: 1 << 60})
	if !errors.Is(err, ErrCapacity) || !strings.Contains(err.Error(), "memory and swap") {
		t.Error(err)
	}
}
