package roce

import (
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestFarPeerOpensWindow: that the first timeout is too short for the path, before the round trip is known, doesn't keep
// the window from opening as fast as to a near peer.
func TestFarPeerOpensWindow(t *testing.T) {
	eachKind(t, func(t *testing.T, op verbs.WROpcode, foreign bool) {
		const latency, size, depth, most, trips = 400 * time.Millisecond, 64 << 10, 8, 256 << 10, 20
		p := newPair(t, pairConfig{
			timeout: 18, foreign: foreign, mtu: verbs.MTU4096, maxRd: maxRdAtomic, memory: depth * size,
			endpoint: simnet.Config{MTU: 9000, RecvBuffer: 4 << 20}, device: Config{maxWindow: most},
		})
		p.net.SetDefault(simnet.Link{Latency: latency, Bandwidth: 125e6})
		move := func(i, n int) {
			p.a.post(verbs.SendWR{
				WRID: uint64(i), Opcode: op, SGList: p.a.sge(i*size, n), RemoteAddr: p.b.mr.Addr() + uint64(i*size), RKey: p.b.mr.RKey(),
			})
		}
		for range 4 { // as connections begin; the first is sent again
			move(0, 8)
			p.a.want(0, verbs.WCSuccess)
		}
		if p.a.dev.Counters()[Retransmitted] == 0 {
			t.Error("no timeout was too short")
		}
		for i := range depth {
			move(i, size)
		}
		moved := 0
		for end := time.Now().Add(trips * 2 * latency); time.Now().Before(end); moved += size {
			move(int(p.a.wait(1)[0].WRID), size)
		}
		if want := most * trips / 2; moved < want {
			t.Errorf("%d bytes in %d round trips, want at least %d; %s", moved, trips, want, dump(p.a.dev))
		}
		time.Sleep(20 * latency)
	}, verbs.WRRDMAWrite, verbs.WRRDMARead)
}

// TestLateOrLost: the cut of a window for silence is undone if the first round trip that is measured shows that the
// answer was only late. It isn't if the first transmission was lost, if something else has shown congestion since, or
// if the cut was made for others before.
func TestLateOrLost(t *testing.T) {
	const rtt, sent, cut = 100 * time.Millisecond, time.Second, time.Second + minEarlyTimeout
	for _, c := range []struct {
		name        string
		again, here time.Duration // when it was sent again and answered, after it was sent first
		since       func(*window)
		cut         time.Duration
		size        int
	}{
		{"late", 60 * time.Millisecond, rtt, nil, cut, initialWindow},
		{"lost", 20 * time.Millisecond, 20*time.Millisecond + rtt, nil, cut, initialWindow / 2},
		{"marked", 60 * time.Millisecond, rtt, func(w *window) { w.marked(cut+1, rtt) }, cut, initialWindow/2 - initialWindow/8},
		{"earlier", 60 * time.Millisecond, rtt, nil, sent - 1, initialWindow / 2},
	} {
		d := &Device{cfg: Config{maxWindow: defaultMaxWindow}, readBudget: defaultMaxWindow}
		p := d.newPath(addrB)
		for _, w := range []*window{&p.window, &p.reads} {
			w.silent(c.cut, p.roundTrip())
			if c.since != nil {
				c.since(w)
			}
		}
		p.distrust(sent, sent+c.again, sent+c.here)
		p.sample(rtt, sent+c.here+rtt)
		for _, w := range []*window{&p.window, &p.reads} {
			opens := w.threshold == defaultMaxWindow
			if w.size != c.size || opens != (c.size == initialWindow) {
				t.Errorf("%s: the window is %d bytes, and its threshold %d; want %d", c.name, w.size, w.threshold, c.size)
			}
		}
	}
}
