package metrics

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestQueueGone: what a controller has completed is also what its queues did that are gone. Prometheus takes a counter
// that falls for one that began anew.
func TestQueueGone(t *testing.T) {
	reads := func(n uint64) (s target.IOStats) {
		s.Read.Bytes = n
		return s
	}
	v := controllerView{c: &target.ControllerStats{
		Retired: reads(5), Queues: []target.QueueStats{{IO: reads(20)}, {IO: reads(300)}},
	}}
	v.fill("nqn.2014-08.org.example:s")
	if n := v.io.Read.Bytes; n != 325 {
		t.Errorf("%d bytes read, want 325", n)
	}
}
