package roce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestTurnEnds: others keep room free for the queue pair that has its turn at a window. They take that room when the
// queue pair ends, or has to wait for something else.
func TestTurnEnds(t *testing.T) {
	for name, end := range map[string]func(q verbs.QP) error{
		"destroyed": verbs.QP.Destroy,
		"reset":     func(q verbs.QP) error { return q.Modify(verbs.QPAttr{State: verbs.Reset}) },
		"error":     func(q verbs.QP) error { return q.Modify(verbs.QPAttr{State: verbs.Err}) },
		"not ready": nil, // its peer, for half a second
	} {
		for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
			if end == nil && op == verbs.WRRDMARead {
				continue // a READ that waits isn't behind anything
			}
			t.Run(fmt.Sprintf("%s, opcode %d", name, op), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testTurnEnds(t, op, end) })
			})
		}
	}
}

func testTurnEnds(t *testing.T, op verbs.WROpcode, end func(verbs.QP) error) {
	const window, small, left = 64 << 10, 8, 1352
	p := newPair(t, pairConfig{
		mtu: verbs.MTU4096, memory: window, rnrTimer: 31, rnrRetry: 7,
		endpoint: simnet.Config{RecvBuffer: 1 << 20}, device: Config{maxWindow: window},
	})
	p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
	p.cfg.timeout = 0 // only what is tested makes others send
	silent, gone := another(p.a, p.cfg), another(p.b, p.cfg)
	first, notReady := another(p.a, p.cfg), another(p.b, p.cfg)
	next, ready := another(p.a, p.cfg), another(p.b, p.cfg)
	p.connect(silent, gone)
	p.connect(first, notReady)
	p.connect(next, ready)
	check(t, gone.qp.Destroy())
	move := func(s *side, n int) {
		s.post(verbs.SendWR{Opcode: op, SGList: s.sge(0, n), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
	}
	full := window - left // what is out except left; for a WRITE its packets count too
	if op == verbs.WRRDMAWrite {
		full -= (full + 4096 + packetCost - 1) / (4096 + packetCost) * packetCost
	}
	move(silent, full)
	if end == nil {
		first.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: first.sge(0, small)})
	}
	move(first, 4096) // which finds no room, and has its turn
	if n := inside(first, func(q *qp) int { return len(q.path.sendTurns) + len(q.path.readTurns) }); n != 1 {
		t.Fatalf("%d turns, want one", n)
	}
	time.Sleep(10 * time.Millisecond)
	if end != nil {
		check(t, end(first.qp))
	}
	move(next, small)
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	if len(next.got) == 0 {
		t.Errorf("the next one still waits; %s", dump(p.a.dev))
	}
}
