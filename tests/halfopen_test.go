package tests

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// TestHalfOpenLimit: only as many requests as the configuration file allows may wait for their host's confirmation, per
// address and in total; the others are rejected.
func TestHalfOpenLimit(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	file := filepath.Join(t.TempDir(), "target.yaml")
	writeText(t, file, fmt.Sprintf(`listen: ["rdma://%s:%s"]
metrics: %s:%s
limits: {half_open: 3, host_half_open: 2}
subsystems:
- nqn: %s
  namespaces:
  - {volume: "mem:1MiB"}
`, addr, nvmePort, addr, metricsPort, testNQN))
	p := startServe(t, addr, "--config", file)
	for range 2 {
		a := newAttacker(t, &victim{addr: p.remote()}, &decoy{}, freeAddr(t))
		a.aim()
		for range 5 {
			a.send(a.request())
		}
	}
	var waiting, rejected float64
	eventually(t, 10*time.Second, "answers to ten requests", func() bool {
		f := p.scrape(t)
		waiting, rejected = f.sum(t, "nvmeof_cm_half_open_connections"), f.sum(t, "nvmeof_cm_rejects_total")
		return waiting+rejected >= 10
	})
	if waiting != 3 || rejected != 7 {
		t.Errorf("%v wait and %v were rejected, want 3 and 7", waiting, rejected)
	}
}
