package metrics

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestPageCommandsUnderWay: a controller's commands in flight are those that were sent and not answered. One that is
// cancelled while it waits for its turn never was one of them.
func TestPageCommandsUnderWay(t *testing.T) {
	p := &pair{t: t, set: New()}
	v, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	p.must(err)
	frozen := wrap.NewFreezer(v)
	t.Cleanup(func() { frozen.Close() })
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: frozen}},
	}}})
	p.must(err)
	t.Cleanup(func() { tgt.Close(context.Background()) })
	p.listenTCP(tgt)
	tr, err := tcp.NewTransport(tcp.HostConfig{})
	p.must(err)
	t.Cleanup(func() { tr.Close() })
	c, err := host.Connect(t.Context(), host.Config{
		Transport: tr, Remote: p.tcpAddr, SubNQN: testNQN, HostNQN: hostNQN, Queues: 1, QueueSize: 2,
	})
	p.must(err)
	t.Cleanup(func() { c.Close() })
	p.set.AddController(c)
	ns, err := c.Namespace(t.Context(), 1)
	p.must(err)

	inFlight := func() int { return p.set.status().IO.InFlight }
	var reads sync.WaitGroup
	frozen.Freeze()
	reads.Go(func() {
		if _, err := ns.ReadAt(t.Context(), make([]byte, 4096), 0); err != nil {
			t.Error(err)
		}
	})
	if !soon.Until(func() bool { return inFlight() == 1 }) {
		t.Fatalf("%d commands are in flight, want 1", inFlight())
	}
	waiting, cancel := context.WithCancel(t.Context())
	reads.Go(func() {
		if _, err := ns.ReadAt(waiting, make([]byte, 4096), 0); !errors.Is(err, context.Canceled) {
			t.Errorf("the command that is cancelled ends with %v", err)
		}
	})
	q := c.Queues()[0].Counters()
	soon.Until(func() bool { return q.Waited.Load() == 1 })
	cancel()
	if !soon.Until(func() bool { return q.Cut.Load() == 1 }) {
		t.Fatal("no command was cut")
	}
	if n := inFlight(); n != 1 {
		t.Errorf("%d commands are in flight when another was cancelled, want 1", n)
	}
	frozen.Thaw()
	reads.Wait()
	if n := inFlight(); n != 0 {
		t.Errorf("%d commands are in flight when all have ended, want 0", n)
	}
}
