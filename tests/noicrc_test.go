package tests

import (
	"testing"
	"time"
)

// TestNoLocalICRC: packets of two programs on this machine have no ICRC if both are told to omit it, and all have one
// otherwise.
func TestNoLocalICRC(t *testing.T) {
	t.Parallel()
	option := []string{"--no-local-icrc"}
	for _, c := range []struct {
		name         string
		target, host []string
		omitted      bool
	}{
		{"both", option, option, true},
		{"only the target", option, nil, false},
		{"only the host", nil, option, false},
		{"both, over a network that damages packets", append(option, "--fault", "corrupt=0.5%"), option, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := freeAddr(t)
			tgt := startTargetAt(t, addr, append(c.target, "--volume", "mem:16MiB", "--metrics", addr.String()+":"+metricsPort)...)
			tgt.must(t, time.Minute, "rdma", "bench", append(c.host, "--rw", "write", "--bs", "8k", "--size", "8m",
				"--iodepth", "16", "--verify", "crc32c")...)
			s := tgt.scrape(t)
			if got := s.sum(t, "nvmeof_rnic_rx_icrc_omitted_total") > 0; got != c.omitted {
				t.Errorf("packets without ICRC: %t, want %t", got, c.omitted)
			}
			if bad := s.sum(t, "nvmeof_rnic_rx_icrc_encapsulated_total"); bad > 0 != (len(c.target) > 1) {
				t.Errorf("%v packets were dropped for their ICRC", bad)
			}
			tgt.stop(t)
		})
	}
}
