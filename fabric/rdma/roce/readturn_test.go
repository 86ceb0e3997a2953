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

// TestLargeReadHasItsTurn: a large READ finds room for its answer, although small ones, of another peer or of another
// queue pair to the same peer, take whatever room there is.
func TestLargeReadHasItsTurn(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		for _, same := range []bool{false, true} {
			t.Run(fmt.Sprintf("foreign=%v, same peer=%v", foreign, same), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testReadTurns(t, foreign, same) })
			})
		}
	}
}

func testReadTurns(t *testing.T, foreign, same bool) {
	const small, large, depth = 8 << 10, 256 << 10, 64
	p := newPair(t, pairConfig{
		mtu: verbs.MTU4096, maxRd: 128, depth: depth, memory: large, timeout: 17, foreign: foreign,
		device: Config{MaxWindow: 256 << 10}, endpoint: simnet.Config{MTU: 9000, RecvBuffer: 1 << 20},
	})
	p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
	far := p.newSide(netip.MustParseAddr("10.0.0.3"))
	defer far.dev.Close()
	if same {
		far = another(p.b, p.cfg)
	}
	busy := another(p.a, p.cfg)
	p.connect(busy, far)
	read := func(s, from *side, n int) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: s.sge(0, n), RemoteAddr: from.mr.Addr(), RKey: from.mr.RKey()}
	}
	var stop atomic.Bool
	busy.handle = func(*verbs.WC) {
		if !stop.Load() {
			busy.post(read(busy, far, small))
		}
	}
	for range depth {
		busy.post(read(busy, far, small))
	}
	time.Sleep(10 * time.Millisecond)
	p.a.post(read(p.a, p.b, large))
	time.Sleep(10 * time.Millisecond)
	stop.Store(true)
	synctest.Wait()
	if len(p.a.got) == 0 {
		t.Errorf("a READ of %d bytes isn't over; %s", large, dump(p.a.dev))
	}
	time.Sleep(10 * time.Millisecond)
}
