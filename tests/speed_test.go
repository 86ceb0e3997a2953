package tests

import (
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
)

// TestRDMANotSlower compares the transports in one run, in pairs of short measurements that
// take turns in coming first: at 4 KiB and depth 32 RDMA should not be behind NVMe/TCP. The
// median of the pairs' ratios forgives a disturbance that hits fewer than half of them.
//
// It wants both processors for itself, so it runs only when asked for: make speed.
func TestRDMANotSlower(t *testing.T) {
	const pairs = 7
	if os.Getenv("NVMEOF_SPEED") == "" {
		t.Skip("a comparison of speed runs only when asked for: make speed")
	}
	if runtime.NumCPU() < 2 {
		t.Skip("it takes two processors: one for each program")
	}
	if racing() {
		t.Skip("the race detector measures itself")
	}
	p := startTarget(t, "--volume", "mem:256MiB")
	p.must(t, 20*time.Second, "tcp", "bench", "--rw", "write", "--bs", "128k", "--iodepth", "8")
	ratios := make([]float64, 0, pairs)
	for i := range pairs {
		order := slices.Clone(transports)
		if i%2 == 1 {
			slices.Reverse(order)
		}
		iops := map[string]float64{}
		for _, transport := range order {
			iops[transport] = p.randread(t, transport)
		}
		ratios = append(ratios, iops["rdma"]/iops["tcp"])
		t.Logf("RDMA %.0f, TCP %.0f IOPS: %.2f", iops["rdma"], iops["tcp"], ratios[i])
	}
	slices.Sort(ratios)
	if m := ratios[pairs/2]; m < 1 {
		t.Errorf("RDMA does %.2f times what TCP does (median of %v)", m, ratios)
	} else {
		t.Logf("RDMA does %.2f times what TCP does", m)
	}
}

// randread measures 4 KiB random reads at depth 32 on one queue.
func (p *targetProgram) randread(t *testing.T, transport string) float64 {
	t.Helper()
	out := p.must(t, 20*time.Second, transport, "bench", "--rw", "randread", "--bs", "4k", "--iodepth", "32",
		"--ramp_time", "100ms", "--runtime", "600ms", "-o", "json")
	var report struct {
		Jobs []struct {
			Read struct{ IOPS float64 }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if len(report.Jobs) != 1 || report.Jobs[0].Read.IOPS == 0 {
		t.Fatalf("no reads were measured: %s", out)
	}
	return report.Jobs[0].Read.IOPS
}
