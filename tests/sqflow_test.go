package tests

import (
	"testing"
	"time"
)

// TestDisableSQFlow: a host that asks for it, and only such a host, has reads answered by their data alone.
func TestDisableSQFlow(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	tgt := startTargetAt(t, addr, "--volume", "mem:16MiB", "--metrics", addr.String()+":"+metricsPort)
	const success = "nvmeof_tcp_success_flags_total"
	bench := []string{"--rw", "write", "--bs", "8k", "--size", "8m", "--iodepth", "16", "--verify", "crc32c"}
	tgt.must(t, time.Minute, "tcp", "bench", bench...)
	if n := tgt.scrape(t).sum(t, success); n != 0 {
		t.Errorf("%v responses are left out for a host that hasn't asked for it", n)
	}
	tgt.must(t, time.Minute, "tcp", "bench", append(bench, "--disable-sqflow")...)
	if n := tgt.scrape(t).sum(t, success); n < 1024 {
		t.Errorf("%v responses are left out, want those of 1024 reads", n)
	}
	tgt.stop(t)
}
