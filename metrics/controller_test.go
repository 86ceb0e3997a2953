package metrics

import (
	"bytes"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestQueueGone: what a controller has completed includes the work of queues that are gone. Prometheus takes a counter
// that decreases for one that was reset.
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

// TestControllersCollected: the library gets the same metrics of controllers that exposition writes, with labels that
// hosts choose.
func TestControllersCollected(t *testing.T) {
	c := target.ControllerStats{
		CNTLID: 7, HostNQN: "nqn.\"\\\n\xff", Since: time.Unix(1_800_000_000, 5e8), Queues: make([]target.QueueStats, 3),
	}
	io := &c.Retired
	io.Read = target.OpStats{Ops: 1, Bytes: 2, Nanos: 3}
	io.Write = target.OpStats{Ops: 4, Bytes: 5, Nanos: 6e9}
	io.Other = target.OpStats{Ops: 7, Nanos: 8}
	io.Errors[2], io.Errors[3], io.Stages.Sampled = 9, 10, 11
	for i := range io.Stages.Nanos {
		io.Stages.Nanos[i] = 12e8 + uint64(i)
	}
	snaps := []target.Snapshot{{Controllers: 1, Subsystems: []target.SubsystemStats{{NQN: testNQN, Controllers: []target.ControllerStats{c}}}}}
	var e exposition
	e.controllers(snaps)
	p := expfmt.NewTextParser(model.LegacyValidation)
	written, err := p.TextToMetricFamilies(bytes.NewReader(e.b))
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collector(func(ch chan<- prometheus.Metric) { collectControllers(ch, snaps) }))
	collected, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got, want := seriesOf(collected), seriesOf(slices.Collect(maps.Values(written)))
	if !maps.Equal(got, want) || len(got) != 18 {
		t.Errorf("collected:\n%v\nwritten:\n%v", got, want)
	}
}
