package roce

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestLongPacketHasItsTurn: a packet that takes much of a window finds room in it, though another queue pair to the
// same peer always has small ones waiting.
func TestLongPacketHasItsTurn(t *testing.T) {
	for _, small := range []int{2, 4, 8} {
		t.Run(fmt.Sprintf("%d small ones", small), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testPacketTurns(t, small) })
		})
	}
}

func testPacketTurns(t *testing.T, depth int) {
	const small, large = 4 << 10, 128 << 10
	p := newPair(t, pairConfig{
		mtu: verbs.MTU4096, memory: large, timeout: 17, options: OptionLongData,
		endpoint: simnet.Config{MTU: 65536, RecvBuffer: 1 << 20},
	})
	p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
	busy, far := another(p.a, p.cfg), another(p.b, p.cfg)
	p.connect(busy, far)
	write := func(s *side, n int) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: s.sge(0, n), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()}
	}
	var stop atomic.Bool
	busy.handle = func(*verbs.WC) {
		if !stop.Load() {
			busy.post(write(busy, small))
		}
	}
	for range depth { // they are acknowledged one after another
		busy.post(write(busy, small))
		time.Sleep(10 * time.Microsecond)
	}
	p.a.post(write(p.a, large))
	time.Sleep(10 * time.Millisecond)
	stop.Store(true)
	synctest.Wait()
	if len(p.a.got) == 0 {
		t.Errorf("a WRITE of %d bytes isn't over; %s", large, dump(p.a.dev))
	}
	time.Sleep(10 * time.Millisecond)
}
