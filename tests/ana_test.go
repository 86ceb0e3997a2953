package tests

import (
	"errors"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestANA: over every transport, a host with two paths to a namespace is notified when one of them can't be used any
// more, sees that in the log, and continues over the other.
func TestANA(t *testing.T) {
	noLeaks(t)
	v := newMemory(t, 16<<20)
	tgt, one := serveConfig(t, target.Config{Subsystems: []target.SubsystemConfig{
		{NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v, ANAGroup: 3}}},
	}})
	two := listenPair(t, tgt)
	for i, p := range []target.Port{
		rdma.DiscoveryPort(one, nvme.RDMAProviderRoCE2), {Transport: nvme.TransportTCP, Addr: one}, rdma.DiscoveryPort(two, nvme.RDMAProviderRoCE2), {Transport: nvme.TransportTCP, Addr: two},
	} {
		p.ID = uint16(i + 1)
		if err := tgt.AddPort(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			port := uint16(1)
			if path != "rdma" {
				port = 2
			}
			told := make(chan nvme.AsyncEvent, 8)
			a := dialHost(t, one, path, func(c *host.Config) {
				c.Event = func(_ *host.Controller, e nvme.AsyncEvent) { told <- e }
			})
			defer a.close(t)
			b := dialHost(t, two, path, nil)
			defer b.close(t)
			for _, state := range []nvme.ANAState{nvme.ANAInaccessible, nvme.ANAOptimized} {
				if err := tgt.SetANAState(port, 3, state); err != nil {
					t.Fatal(err)
				}
				if e := <-told; e != nvme.EventANAChanged {
					t.Errorf("event %v", e)
				}
				log, err := a.ANA(t.Context())
				if err != nil || len(log.Groups) != 1 || log.Groups[0].ID != 3 || log.Groups[0].State != state {
					t.Errorf("log %+v, %v", log, err)
				}
				r := host.Request{Data: make([]byte, 4096)}
				r.Cmd.SetIO(nvme.OpRead, 1, 0, 1, 0)
				err = a.Queues()[0].Do(t.Context(), &r)
				if lost := errors.Is(err, nvme.StatusANAInaccessible); lost != (state == nvme.ANAInaccessible) || r.Status().DNR() {
					t.Errorf("%v: read: %v", state, err)
				}
				if err := b.Queues()[0].Do(t.Context(), &r); err != nil {
					t.Errorf("the other path: %v", err)
				}
			}
		})
	}
}
