package rdma_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// One host's connections, and the memory of its queues, are limited to its share. The status says why, and what the
// host had is free again when it leaves.
func TestShareOfConnections(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  rdma.TargetConfig
	}{
		{"connections", rdma.TargetConfig{MaxPeerConns: 2}},
		// A queue of 128 takes half a MiB, and a host may have three quarters of one.
		{"buffers", rdma.TargetConfig{Memory: 2 << 20}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.cfg, memory(t, 1<<20))
			for range 3 {
				_, err := host.Connect(context.Background(), host.Config{
					Transport: r.transport, Remote: r.addr, SubNQN: testNQN, Queues: 2, QueueSize: 128,
				})
				var reject *rdma.RejectError
				if !errors.As(err, &reject) || reject.Status != rdma.RejectNoResources {
					t.Errorf("two I/O queues: %v, want a rejection for want of resources", err)
				}
				if err := r.reconnect(t).Close(); err != nil {
					t.Error(err)
				}
			}
			if n := r.listener.Counters(); n.Limited.Load() < 3 || n.Limited.Load() != n.Rejected.Load() {
				t.Errorf("%d of %d rejections are counted as for a limit", n.Limited.Load(), n.Rejected.Load())
			}
		})
	}
}

// reconnect connects with one I/O queue as soon as the target has released the connections that the host has just
// ended.
func (r *rig) reconnect(t *testing.T) *host.Controller {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		c, err := host.Connect(ctx, host.Config{Transport: r.transport, Remote: r.addr, SubNQN: testNQN, Queues: 1})
		var reject *rdma.RejectError
		if errors.As(err, &reject) && reject.Status == rdma.RejectNoResources && ctx.Err() == nil {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}
