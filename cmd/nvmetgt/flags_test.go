package main

import (
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/config"
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
		cfg, err := configured(t, x.flags)
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

// TestFlagsInErrors: a value that is out of bounds is reported with its flag, not with the field of a configuration file.
func TestFlagsInErrors(t *testing.T) {
	for flags, want := range map[string]string{
		"--dscp=64":                  "--dscp 64: ",
		"--priority=7":               "--priority 7: ",
		"--busy-poll=1m":             "--busy-poll 1m0s: ",
		"--engines=9":                "--engines 9: ",
		"--engines=0":                "--engines 0: ",
		"--engines=2 --local-memory": "--engines 2 and --local-memory: ",
		"--queue-depth=1":            "--queue-depth 1: ",
		"--block-size=7":             "--block-size: ",
	} {
		if _, err := configured(t, flags); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s…", flags, err, want)
		}
	}
}

// configured returns the configuration of serve with flags and a volume.
func configured(t *testing.T, flags string) (*config.Config, error) {
	t.Helper()
	c, f := newServe(), &serveFlags{}
	c.ResetFlags()
	f.add(c)
	if err := c.ParseFlags(append(strings.Fields(flags), "--volume=mem:1MiB")); err != nil {
		t.Fatal(err)
	}
	return f.configuration(c)
}
