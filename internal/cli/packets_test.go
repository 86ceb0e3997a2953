package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestPackets: the flags' bounds, which help names, are accepted, and what is beyond them is a mistake.
func TestPackets(t *testing.T) {
	for args, says := range map[string]string{
		"": "", "--dscp=0 --priority=0 --busy-poll=0s": "", "--dscp=63 --priority=6": "", "--busy-poll=" + MaxBusyPoll.String(): "",
		"--fault=loss=1%": "", "--engines=8 --plain-udp": "", "--engines=1 --local-memory": "",
		"--engines=0": "--engines 0: want 1 to 8", "--engines=9": "--engines 9: want 1 to 8",
		"--engines=2 --local-memory": "--engines 2 and --local-memory: want one of them",
		"--dscp=64":                  "--dscp 64: want 0 to 63", "--dscp=-1": "--dscp -1: want 0 to 63",
		"--priority=7": "--priority 7: want 0 (as the DSCP says) to 6", "--priority=-1": "--priority -1: want",
		"--busy-poll=-1us": "--busy-poll -1µs: want 0, which is off", "--busy-poll=" + (MaxBusyPoll + time.Nanosecond).String(): "--busy-poll ",
	} {
		var p Packets
		fl := pflag.NewFlagSet("", pflag.ContinueOnError)
		p.AddFlags(fl, "")
		if err := fl.Parse(strings.Fields(args)); err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		err := p.Validate()
		var usage *UsageError
		if says == "" && err != nil || says != "" && (!errors.As(err, &usage) || !strings.HasPrefix(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", args, err, says)
		}
	}
}

// TestSizeText: a size is written so that it is read as the same number of bytes, with a unit if that is exact.
func TestSizeText(t *testing.T) {
	for size, want := range map[Size]string{0: "0 B", 1: "1 B", 4096: "4.0 KiB", 1 << 30: "1.0 GiB", 1<<30 + 1: "1073741825", 1000: "1000 B",
		1 << 40: "1.0 TiB", 123456789: "123456789"} {
		b, err := size.MarshalText()
		if err != nil || string(b) != want {
			t.Errorf("%d is written as %q, %v", int64(size), b, err)
		}
		var again Size
		if err := again.UnmarshalText(b); err != nil || again != size {
			t.Errorf("%d is written as %q, and read as %d, %v", int64(size), b, int64(again), err)
		}
	}
}

// TestOverlaps: every address of a family takes the port of each address of it, for one transport.
func TestOverlaps(t *testing.T) {
	for _, x := range []struct {
		a, b string
		want bool
	}{
		{"tcp://0.0.0.0", "tcp://127.0.0.1", true}, {"rdma://[::]", "rdma://[::1]", true}, {"tcp://0.0.0.0", "tcp://0.0.0.0", true},
		{"tcp://0.0.0.0", "rdma://127.0.0.1", false}, {"tcp://0.0.0.0", "tcp://127.0.0.1:4421", false},
		{"tcp://0.0.0.0", "tcp://[::1]", false}, {"tcp://[::]", "tcp://127.0.0.1", false}, {"tcp://127.0.0.1", "tcp://127.0.0.2", false},
	} {
		a, errA := ParseEndpoint(x.a)
		b, errB := ParseEndpoint(x.b)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if a.Overlaps(b) != x.want || b.Overlaps(a) != x.want {
			t.Errorf("%s and %s overlap: %v", a, b, !x.want)
		}
	}
}
