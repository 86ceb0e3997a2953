package roce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestLossIsSurvivable compares the goodput of requests of 128 KiB on a lossy link with that
// without losses, in the same virtual network: 10 Gb/s, a round trip of 100 µs.
func TestLossIsSurvivable(t *testing.T) {
	if raceBuild {
		t.Skip("TestHistories and TestUnreliableNetwork have the same code under the race detector")
	}
	for _, op := range []struct {
		name string
		op   verbs.WROpcode
	}{{"WRITE", verbs.WRRDMAWrite}, {"READ", verbs.WRRDMARead}} {
		for _, mtu := range []verbs.MTU{verbs.MTU1024, verbs.MTU4096} {
			for _, depth := range []int{8} {
				t.Run(fmt.Sprintf("%s/mtu=%d/depth=%d", op.name, mtu.Bytes(), depth), func(t *testing.T) {
					clean := goodput(t, op.op, mtu, depth, 0)
					for _, c := range []struct{ loss, want float64 }{{0.001, 0.9}, {0.01, 0.6}, {0.05, 0.25}} {
						got := goodput(t, op.op, mtu, depth, c.loss)
						t.Logf("%.1f%% lost: %4.0f of %.0f MB/s, %.0f%%", 100*c.loss, got/1e6, clean/1e6, 100*got/clean)
						if got < c.want*clean {
							t.Errorf("%.1f%% lost: want %.0f%%", 100*c.loss, 100*c.want)
						}
					}
				})
			}
		}
	}
}

// goodput is the bytes per second of virtual time that requests of 128 KiB move.
func goodput(t *testing.T, op verbs.WROpcode, mtu verbs.MTU, depth int, loss float64) (rate float64) {
	synctest.Test(t, func(t *testing.T) {
		const size, count = 128 << 10, 480
		p := newPair(t, pairConfig{
			mtu: mtu, depth: 2 * depth, maxRd: 32, memory: size * (depth + 1), timeout: 17,
			endpoint: simnet.Config{MTU: 9000, RecvBuffer: 4 << 20, Coalesce: true},
		})
		p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond, Bandwidth: 1250 << 20, Loss: loss})
		post := func(slot uint64) {
			p.a.post(verbs.SendWR{
				WRID: slot, Opcode: op, SGList: p.a.sge(int(slot)*size, size),
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
