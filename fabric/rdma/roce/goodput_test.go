package roce

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/race"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// survives compares the goodput at 0.1%, 1% and 5% loss with that without loss, in the same virtual network. It must
// keep the given parts.
func (r lossyRun) survives(t *testing.T, keeps [3]float64) {
	t.Helper()
	if race.Enabled {
		t.Skip("TestHistories and TestUnreliableNetwork have the same code under the race detector")
	}
	const more = 4 // runs, if the first falls short: their mean counts
	clean := r.goodput(t)
	for i, loss := range []float64{0.001, 0.01, 0.05} {
		r.loss = loss
		got := r.goodput(t)
		if got < keeps[i]*clean { // goroutines run in another order each time, and that moves it by a few percent
			for range more {
				got += r.goodput(t)
			}
			got /= 1 + more
		}
		t.Logf("%.1f%% lost: %4.0f of %.0f MB/s, %.0f%%", 100*loss, got/1e6, clean/1e6, 100*got/clean)
		if got < keeps[i]*clean {
			t.Errorf("%.1f%% lost: want %.0f%%", 100*loss, 100*keeps[i])
		}
	}
}

var survivors = []struct {
	name string
	op   verbs.WROpcode
}{{"WRITE", verbs.WRRDMAWrite}, {"READ", verbs.WRRDMARead}}

// TestLossIsSurvivable loses packets on a link of 10 Gb/s with a round trip of 100 µs.
func TestLossIsSurvivable(t *testing.T) {
	for _, op := range survivors {
		for _, mtu := range []verbs.MTU{verbs.MTU1024, verbs.MTU4096} {
			t.Run(fmt.Sprintf("%s/mtu=%d", op.name, mtu.Bytes()), func(t *testing.T) {
				lossyRun{op: op.op, mtu: mtu, bandwidth: 1250 << 20}.survives(t, [3]float64{0.9, 0.6, 0.25})
			})
		}
	}
}

// TestLossIsSurvivableWhenBusy does so on a link of 1 Gb/s between hosts that wait for their turn on the processor, now
// and then for another program's time slice: as long as it takes to empty a window of 256 KiB, or one of 768 KiB. Round
// trips are uneven then; windows should allow for that and not take it for congestion, and what is lost twice should
// not wait for the longest of them.
func TestLossIsSurvivableWhenBusy(t *testing.T) {
	for _, c := range []struct {
		slice time.Duration
		keeps [3]float64
	}{{4 * time.Millisecond, [3]float64{0.9, 0.75, 0.6}}, {8 * time.Millisecond, [3]float64{0.9, 0.6, 0.25}}} {
		for _, op := range survivors {
			t.Run(fmt.Sprintf("%s/%v", op.name, c.slice), func(t *testing.T) {
				seed := uint64(0)
				lossyRun{op: op.op, mtu: verbs.MTU1024, bandwidth: 125e6, hosts: func(conn udp.Conn) udp.Conn {
					seed++
					return &busyHost{conn, rand.New(rand.NewPCG(seed, 0)), c.slice}
				}}.survives(t, c.keeps)
			})
		}
	}
}

// lossyRun is a series of requests of 128 KiB over a link that loses some packets.
type lossyRun struct {
	op        verbs.WROpcode
	mtu       verbs.MTU
	loss      float64
	bandwidth int64                   // bytes per second
	hosts     func(udp.Conn) udp.Conn // what the hosts do to their sockets; may be nil
}

// goodput returns the bytes per second of virtual time that the requests move, eight at a time.
func (r lossyRun) goodput(t *testing.T) (rate float64) {
	synctest.Test(t, func(t *testing.T) {
		const size, count, depth = 128 << 10, 480, 8
		p := newPair(t, pairConfig{
			mtu: r.mtu, depth: 2 * depth, maxRd: maxRdAtomic, memory: size * (depth + 1), timeout: 17, wrap: r.hosts,
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

// busyHost is the socket of a program that has to wait for its turn on the processor: up to half a millisecond each
// time, and once in a while for up to a time slice.
type busyHost struct {
	udp.Conn
	rng   *rand.Rand
	slice time.Duration
}

func (c *busyHost) Recv(rx []udp.Received) (int, error) {
	wait := c.rng.Int64N(int64(500 * time.Microsecond))
	if c.rng.IntN(16) == 0 {
		wait += c.rng.Int64N(int64(c.slice))
	}
	time.Sleep(time.Duration(wait))
	return c.Conn.Recv(rx)
}
