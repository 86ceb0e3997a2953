package linux

import (
	"testing"
	"time"
)

// TestSilence: the kernel's host acknowledges nvmetgt's probes of a silent host, and notices nothing.
func TestSilence(t *testing.T) {
	if testing.Short() {
		t.Skip("silence takes minutes")
	}
	onKernels(t, "modprobe -a rdma_rxe ib_uverbs nvme-rdma", func(t *testing.T, p *peer) {
		serve(t, "--volume", "mem:32MiB", "--metrics", metricsAddr)
		const probes = "nvmeof_rdma_probes_total"
		dev := p.connect(t, "rdma", "-i 2")
		time.Sleep(130 * time.Second) // its I/O queues are silent
		if n := metric(t, probes); n < 2 {
			t.Errorf("%v probes of two I/O queues", n)
		}
		if up := p.must(t, "cat /sys/class/nvme/nvme*/state"); up != "live\n" {
			t.Errorf("the controller is %q", up)
		}
		p.verify(t, dev, "--size=1m --rw=randrw --bs=4k")
		p.disconnect(t)
	})
}
