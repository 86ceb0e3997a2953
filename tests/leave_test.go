package tests

import (
	"strings"
	"testing"
	"time"
)

// TestLeave: commands end their connections as hosts should, by shutting the controller down, so that no target takes
// them for lost.
func TestLeave(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:1MiB")
	said := func(text string) int { return strings.Count(tgt.stderr.String(), text) }
	for _, transport := range transports {
		for _, line := range []string{
			"connect", "connect-all", "discover", "id-ctrl", "read --quiet", "read --quiet --all-paths", "bench --rw read --io_size 4k",
		} {
			verb, flags, _ := strings.Cut(line, " ")
			tgt.must(t, cliTimeout, transport, verb, args(flags)...)
			eventually(t, 20*time.Second, line+" to leave over "+transport, func() bool {
				return said(`msg="host connected"`) == said(`msg="host disconnected"`)+said(`msg="host lost"`)
			})
			if n := said(`msg="host lost"`); n > 0 {
				t.Fatalf("%s over %s: the target takes it for lost:\n%s", line, transport, tgt.stderr.String())
			}
		}
	}
	if said(`msg="host disconnected"`) == 0 {
		t.Error("nobody came")
	}
}
