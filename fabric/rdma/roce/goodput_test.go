package roce

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// survives compares the goodput with losses with that without, in the same virtual network.
func (r lossyRun) survives(t *testing.T) {
	t.Helper()
	if raceBuild {
		t.Skip("TestHistories and TestUnreliableNetwork have the same code under the race detector")
	}
	clean := r.goodput(t)
	for _, c := range []struct{ loss, want float64 }{{0.001, 0.9}, {0.01, 0.6}, {0.05, 0.25}} {
		r.loss = c.loss
		got := r.goodput(t)
		t.Logf("%.1f%% lost: %4.0f of %.0f MB/s, %.0f%%", 100*c.loss, got/1e6, clean/1e6, 100*got/clean)
		if got < c.want*clean {
			t.Errorf("%.1f%% lost: want %.0f%%", 100*c.loss, 100*c.want)
		}
	}
}

var survivors = []struct {
	name string
	op   verbs.WROpcode
}{{"WRITE", verbs.WRRDMAWrite}, {"READ", verbs.WRRDMARead}}

// TestLossIsSurvivable has a link of 10 Gb/s and a round trip of 100 µs lose packets.
func TestLossIsSurvivable(t *testing.T) {
	for _, op := range survivors {
		for _, mtu := range []verbs.MTU{verbs.MTU1024, verbs.MTU4096} {
			t.Run(fmt.Sprintf("%s/mtu=%d", op.name, mtu.Bytes()), func(t *testing.T) {
				lossyRun{op: op.op, mtu: mtu, bandwidth: 1250 << 20}.survives(t)
			})
		}
	}
}

// TestLossIsSurvivableWhenBusy does so between hosts that make round trips long: windows shall
// have room for that, and not take it for congestion.
func TestLossIsSurvivableWhenBusy(t *testing.T) {
	for _, op := range survivors {
		t.Run(op.name, func(t *testing.T) {
			seed := uint64(0)
			lossyRun{op: op.op, mtu: verbs.MTU1024, bandwidth: 125e6, hosts: func(c udp.Conn) udp.Conn {
				seed++
				return &busyHost{c, rand.New(rand.NewPCG(seed, 0)), time.Millisecond}
			}}.survives(t)
		})
	}
}

// lossyRun is requests of 128 KiB over a link that loses some packets.
type lossyRun struct {
	op        verbs.WROpcode
	mtu       verbs.MTU
	loss      float64
	bandwidth int64                   // bytes a second
	hosts     func(udp.Conn) udp.Conn // what the hosts do to their sockets; may be nil
}

// goodput is the bytes per second of virtual time that the requests move, eight at once.
func (r lossyRun) goodput(t *testing.T) (rate float64) {
	synctest.Test(t, func(t *testing.T) {
		const size, count, depth = 128 << 10, 480, 8
		p := newPair(t, pairConfig{
			mtu: r.mtu, depth: 2 * depth, maxRd: 32, memory: size * (depth + 1), timeout: 17, wrap: r.hosts,
			endpoint: simnet.Config{MTU: 9000, RecvBuffer: 4 << 20, Coalesce: true},
		})
		p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond, Bandwidth: r.bandwidth, Loss: r.loss})
		post := func(slot uint64) {
			p.a.post(verbs.SendWR{
				WRID: slot, Opcode: r.op, SGList: p.a.sge(int(slot)*size, size),
				RemoteAddr: p.b.mr.Addr() + slot*size, RKey: p.b.mr.RKey(),
			})
		}
		began := time.Now()
		for slot := range depth {
			post(uint64(slot))
		}
		for done := range count {
			wc := p.a.wait(1)[0]
			if wc.Status != verbs.WCSuccess {
				t.Fatalf("%v; %s", wc.Status, dump(p.a.dev))
			}
			if done+depth < count {
				post(wc.WRID)
			}
		}
		rate = count * size / time.Since(began).Seconds()
	})
	return rate
}

// busyHost is a socket of a program that has to wait for its turn on the processor, up to patience.
type busyHost struct {
	udp.Conn
	rng      *rand.Rand
	patience time.Duration
}

func (c *busyHost) Recv(rx []udp.Received) (int, error) {
	time.Sleep(time.Duration(c.rng.Int64N(int64(c.patience))))
	return c.Conn.Recv(rx)
}
