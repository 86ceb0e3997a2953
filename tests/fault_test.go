package tests

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Faults that both programs inject, in each of which data must arrive unharmed.
var badNetworks = []string{
	"loss=1%",
	"delay=200us±5us",
	"dup=5%",
	"reorder=2%+1ms",
	"corrupt=1%",
	"cut=300ms+200ms",
	"dup=1%,reorder=0.5%,delay=100us,corrupt=0.05%",
}

// What is written through a bad network is read correctly through a good one, whichever side has the faults, and a host
// announces its own.
func TestFaults(t *testing.T) {
	t.Parallel()
	in, want := filepath.Join(t.TempDir(), "in"), make([]byte, 1<<20)
	_, _ = rand.Read(want) // a new volume holds zeroes
	writeFile(t, in, want)
	for _, faults := range badNetworks {
		t.Run(faults, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			for _, side := range []string{"initiator", "target", "both"} {
				var ofTarget, ofInit []string
				if side != "initiator" {
					ofTarget = []string{"--fault", faults}
				}
				if side != "target" {
					ofInit = []string{"--fault", faults}
				}
				p := startTarget(t, append([]string{"--volume", "mem:16MiB"}, ofTarget...)...)
				write := append([]string{"-n", testNQN, "-i", "2", "--input", in, "--verify"}, ofInit...)
				if r := p.run(t, time.Minute, "rdma", "write", write...); r.code != 0 {
					t.Fatalf("faults at the %s: write: exit code %d: %s", side, r.code, r.stderr)
				} else if side != "target" && !strings.Contains(r.stderr, "with faults: "+faults[:5]) {
					t.Errorf("the faults aren't announced: %q", r.stderr)
				}
				p.must(t, time.Minute, "tcp", "read", "-n", testNQN, "--length", "1MiB", "--output", out)
				if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
					t.Errorf("faults at the %s: read back something else (%v)", side, err)
				}
				_ = os.Remove(out)
				p.stop(t)
			}
		})
	}
}

// The seed with which a run can be repeated is announced, and impossible faults are refused.
func TestFaultFlag(t *testing.T) {
	t.Parallel()
	p := startTarget(t, "--volume", "mem:1MiB", "--fault", "loss=0.1%")
	if s := p.stdout.String(); !regexp.MustCompile(`(?m)^     with faults: loss=0\.1%,seed=[0-9]+$`).MatchString(s) {
		t.Errorf("nvmetgt doesn't announce its faults:\n%s", s)
	}
	for _, c := range []struct {
		transport, faults, says string
	}{
		{"rdma", "loss=200%", "want a share from 0% to 100%"},
		{"rdma", "lose=1%", "want one of loss, dup"},
		{"tcp", "loss=1%", "injected into RDMA"},
	} {
		r := p.run(t, 10*time.Second, c.transport, "connect", "--fault", c.faults)
		if r.code != 2 || !strings.Contains(r.stderr, c.says) {
			t.Errorf("-t %s --fault %s: exit code %d, %q; want 2 and %q", c.transport, c.faults, r.code, r.stderr, c.says)
		}
	}
	p.stop(t)
	r := start(t, "nvmetgt", "serve", "--volume", "mem:1MiB", "--listen", "tcp://127.0.0.1:1", "--fault", "loss=1%").result(t, 10*time.Second)
	if r.code != 2 || !strings.Contains(r.stderr, "injected into RDMA") {
		t.Errorf("nvmetgt over TCP alone: exit code %d, %q", r.code, r.stderr)
	}
}
