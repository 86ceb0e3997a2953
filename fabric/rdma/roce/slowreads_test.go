package roce

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestSlowPeerLeavesReads: a peer behind a slow link, from which as much is requested as there is room for, doesn't
// slow another one down.
func TestSlowPeerLeavesReads(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		for _, size := range []int{8 << 10, 64 << 10} {
			t.Run(fmt.Sprintf("foreign=%v, %d bytes", foreign, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testSlowPeer(t, foreign, size) })
			})
		}
	}
}

func testSlowPeer(t *testing.T, foreign bool, size int) {
	const depth, slow, fast = 16, 10 << 20, 1 << 30 // bytes a second
	p := newPair(t, pairConfig{
		mtu: verbs.MTU4096, maxRd: 128, depth: depth, memory: 64 << 10, timeout: 18, foreign: foreign,
		device: Config{maxWindow: 256 << 10}, endpoint: simnet.Config{MTU: 9000, RecvBuffer: 1 << 20},
	})
	p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
	far := p.newSide(netip.MustParseAddr("10.0.0.3"))
	defer far.dev.Close()
	p.net.SetLink(far.dev.Attr().Addr, addrA, simnet.Link{Latency: 50 * time.Microsecond, Bandwidth: slow})
	p.net.SetLink(addrB, addrA, simnet.Link{Latency: 50 * time.Microsecond, Bandwidth: fast})
	toFar := another(p.a, p.cfg)
	p.connect(toFar, far)
	var stop atomic.Bool
	run := func(s, from *side, n int) *atomic.Int64 {
		var moved atomic.Int64
		wr := verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: s.sge(0, n), RemoteAddr: from.mr.Addr(), RKey: from.mr.RKey()}
		s.handle = func(*verbs.WC) {
			moved.Add(int64(n))
			if !stop.Load() {
				s.post(wr)
			}
		}
		for range depth {
			s.post(wr)
		}
		return &moved
	}
	ofFar := run(toFar, far, 64<<10)
	time.Sleep(time.Second)
	of := run(p.a, p.b, size)
	time.Sleep(100 * time.Millisecond)
	stop.Store(true)
	if got, want := of.Load()*10, int64(fast/2); got < want {
		t.Errorf("%d bytes a second, want at least %d; %s", got, want, dump(p.a.dev))
	}
	time.Sleep(2 * time.Second)
	if got, want := ofFar.Load(), int64(slow/2); got < want {
		t.Errorf("%d bytes of the slow peer, want at least %d", got, want)
	}
}
