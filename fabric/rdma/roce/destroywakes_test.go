package roce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestRoomOfWhoEnds: the room in a window that a queue pair held when it was destroyed, reset or moved to ERR goes at
// once to a queue pair that waits for it: no other event may come that would make that one send.
func TestRoomOfWhoEnds(t *testing.T) {
	for name, end := range map[string]func(q verbs.QP) error{
		"destroyed": verbs.QP.Destroy,
		"reset":     func(q verbs.QP) error { return q.Modify(verbs.QPAttr{State: verbs.Reset}) },
		"error":     func(q verbs.QP) error { return q.Modify(verbs.QPAttr{State: verbs.Err}) },
	} {
		for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
			t.Run(fmt.Sprintf("%s, opcode %d", name, op), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const size = 64 << 10
					p := newPair(t, pairConfig{endpoint: simnet.Config{RecvBuffer: 1 << 20}, device: Config{maxWindow: size}})
					p.cfg.timeout = 0 // no timer of its own
					ending, far := another(p.a, p.cfg), another(p.b, p.cfg)
					waiting, peer := another(p.a, p.cfg), another(p.b, p.cfg)
					p.connect(ending, far)
					p.connect(waiting, peer)
					check(t, far.qp.Destroy())
					for _, s := range []*side{ending, waiting} {
						s.post(verbs.SendWR{
							Opcode: op, SGList: s.sge(0, size), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey(),
						})
					}
					time.Sleep(time.Millisecond)
					check(t, end(ending.qp))
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					if len(waiting.got) == 0 {
						t.Errorf("the other one still waits; %s", dump(p.a.dev))
					}
				})
			})
		}
	}
}
