package tests

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestRanges: a range that is discarded, or filled with zeroes, reads as zeroes and its surroundings stay; discarding
// frees the space.
func TestRanges(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, transport := range transports {
		for _, verb := range []string{"discard", "write-zeroes"} {
			dir := t.TempDir()
			tgt := startTarget(t, "--volume", dir+"/disk.img", "--size", "8MiB")
			data := bytes.Repeat([]byte("range"), 8*mib/5+1)[:8*mib]
			if err := os.WriteFile(dir+"/data", data, 0o600); err != nil {
				t.Fatal(err)
			}
			tgt.must(t, cliTimeout, transport, "write", "--input", dir+"/data", "--quiet")
			before := allocated(t, dir+"/disk.img")
			if out := tgt.must(t, cliTimeout, transport, verb, "--offset", "2MiB", "--length", "4MiB"); out != "" {
				t.Errorf("%s: %s says %q", transport, verb, out)
			}
			clear(data[2*mib : 6*mib])
			if out := tgt.must(t, cliTimeout, transport, "read", "--quiet"); out != string(data) {
				t.Errorf("%s: after %s the namespace holds something else", transport, verb)
			}
			if after := allocated(t, dir+"/disk.img"); verb == "discard" && before-after < 3*mib { // the file system's own data takes some
				t.Errorf("%s: the file has %d bytes on disk, and had %d", transport, after, before)
			}
			r := tgt.run(t, cliTimeout, transport, verb, "--offset", "6MiB", "--length", "4MiB")
			if r.code != exitUsage || !strings.Contains(r.stderr, "beyond the namespace's end at 8.0 MiB") {
				t.Errorf("%s: exit code %d, %q", transport, r.code, r.stderr)
			}
			tgt.stop(t)
		}
	}
}

// allocated returns the space that a file takes.
func allocated(t *testing.T, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}
