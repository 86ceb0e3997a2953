package cli

import (
	"strings"
	"testing"
)

// TestGenKey: secrets have as many bytes as nvme-cli's, which refuses other lengths with a hash.
func TestGenKey(t *testing.T) {
	for _, c := range []struct {
		flags  string
		code   int
		length int // of what stands for the secret and its checksum
		stderr string
	}{
		{"", ExitOK, 48, ""},
		{"-m 2", ExitOK, 72, ""},
		{"-m 3 -l 64", ExitOK, 92, ""},
		{"-m 0 -l 48", ExitOK, 72, ""},
		{"-l 64", ExitUsage, 0, "--key-length 64 with --hmac 1: want 32 bytes"},
		{"-m 3 -l 32", ExitUsage, 0, "--key-length 32 with --hmac 3: want 64 bytes"},
		{"-m 0 -l 33", ExitUsage, 0, "want 32, 48 or 64"},
		{"-m 4", ExitUsage, 0, "--hmac 4: want 0"},
		{"-m 4 -l 32", ExitUsage, 0, "--hmac 4: want 0"},
	} {
		code, out, stderr := run(t.Context(), NewGenKey(""), strings.Fields(c.flags)...)
		length := 0
		if parts := strings.Split(out, ":"); len(parts) == 4 {
			length = len(parts[2])
		}
		if code != c.code || length != c.length || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s: exit code %d, %q, %q", c.flags, code, out, stderr)
		}
	}
}
