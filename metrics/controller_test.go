package metrics

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestQueueGone: a controller that loses an I/O queue, or is reset, has still completed what it has. Prometheus takes a
// counter that falls for one that began anew.
func TestQueueGone(t *testing.T) {
	p := newPair(t)
	c := p.connectTCP()
	p.use(c)
	reads := func() float64 {
		return value(t, families(t, p.set), "controller_commands_total", "op=read").GetCounter().GetValue()
	}
	if n := reads(); n != 5 {
		t.Errorf("%v reads", n)
	}
	p.must(c.SetProperty(t.Context(), nvme.PropCC, 0)) // its I/O queues end
	if n := reads(); n != 5 {
		t.Errorf("%v reads after a reset", n)
	}
}
