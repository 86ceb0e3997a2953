package main

import (
	"strings"
	"testing"
)

// TestFlagsAsFile: ctl config writes what the user asked for, and no defaults, which a later version may change.
func TestFlagsAsFile(t *testing.T) {
	for _, x := range []struct{ flags, file string }{
		{"", ""},
		{"--queue-depth=128 --drain-timeout=5s --io=auto", ""},
		{"--queue-depth=64 --engines=2 --busy-poll=0", "network:\n  queue_depth: 64\n  engines: 2\n  busy_poll: 0s\n"},
		{"--max-queues=8 --memory=64MiB", "limits:\n  queues: 8\n  memory: 64 MiB\n"},
		{"--log-level=debug --drain-timeout=0", "log:\n  level: debug\ndrain_timeout: 0s\n"},
	} {
		c, f := newServe(), &serveFlags{}
		c.ResetFlags()
		f.add(c)
		if err := c.ParseFlags(append(strings.Fields(x.flags), "--volume=mem:1MiB")); err != nil {
			t.Fatal(err)
		}
		cfg, err := f.configuration(c)
		if err != nil {
			t.Fatalf("%s: %v", x.flags, err)
		}
		text, err := cfg.Marshal()
		_, rest, _ := strings.Cut(string(text), "volume: mem:1MiB\n")
		if err != nil || rest != x.file {
			t.Errorf("%q is written as %q, want %q: %v", x.flags, rest, x.file, err)
		}
	}
}
