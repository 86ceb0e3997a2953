package rdma_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestHostThatDied: a silent host without a keep-alive timeout stays connected for as long as it lives, at a packet a
// minute per connection, and one that died silently is given up.
func TestHostThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
		defer r.close()
		admin, io := r.controller(0)
		const minutes, queues = 120, 2
		before := r.hn.dev.Counters()[roce.ReceivedPackets]
		time.Sleep(minutes * time.Minute)
		if n := r.listener.Counters().Connections.Load(); n != honestQueues+queues {
			t.Fatalf("%d connections after two hours of silence, want %d", n, honestQueues+queues)
		}
		if n := r.hn.dev.Counters()[roce.ReceivedPackets] - before; n < (minutes-2)*queues || n > minutes*queues {
			t.Errorf("%d packets in %d minutes for %d connections", n, minutes, queues)
		}
		io.sendKeyed(blocks(nvme.OpRead, 0, sglBlock), 0, sglBlock)
		if cqe := <-io.answers; cqe.Status() != nvme.StatusSuccess {
			t.Errorf("a read after two hours of silence: %v", cqe.Status())
		}
		r.net.SetFilter(func(d *simnet.Datagram) simnet.Action {
			return simnet.Action{Drop: d.Src == simHost || d.Dst == simHost}
		})
		died := time.Now()
		r.gone("a host that died")
		if took := time.Since(died); took < time.Minute || took > 5*time.Minute {
			t.Errorf("given up after %v", took)
		}
		if n := r.listener.Counters().Failed.Load(); n != queues {
			t.Errorf("%d failed connections counted, want %d", n, queues)
		}
		r.honest.work('b')
		r.net.SetFilter(nil)
		io.close()
		admin.close()
	})
}

// TestHostIsHeard: a host that sends something each minute isn't probed; only its silent connections are.
func TestHostIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
		defer r.close()
		admin, io := r.controller(0)
		defer admin.close()
		defer io.close()
		const minutes = 10
		probes := func(each func()) uint64 {
			before := r.listener.Counters().Probes.Load()
			for range 2 * minutes {
				each()
				time.Sleep(time.Minute / 2)
			}
			return r.listener.Counters().Probes.Load() - before
		}
		time.Sleep(2 * time.Minute) // since which all are known to be silent
		silent := probes(func() {})
		heard := probes(func() {
			io.sendKeyed(blocks(nvme.OpRead, 0, sglBlock), 0, sglBlock)
			<-io.answers
		})
		if silent-heard != minutes {
			t.Errorf("%d probes in %d minutes, and %d while one connection was used; want one less each minute",
				silent, minutes, heard)
		}
	})
}
