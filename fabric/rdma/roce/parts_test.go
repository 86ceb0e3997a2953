package roce

import (
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestTrainsOfManyQueuePairs: of queue pairs that each have a WRITE and a SEND for one peer, all
// WRITEs leave in one train and all SENDs in another, and the order in each stays.
func TestTrainsOfManyQueuePairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pairs = 16
		p := newPair(t, pairConfig{rnrRetry: 7})
		qps := [2][pairs]verbs.QP{{p.a.qp}, {p.b.qp}}
		for i := 1; i < pairs; i++ {
			p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
			p.connect(p.a, p.b)
			qps[0][i], qps[1][i] = p.a.qp, p.b.qp
		}
		d := p.a.dev
		before := d.Counters()
		d.mu.Lock()
		d.takeTurn() // what is posted waits
		d.mu.Unlock()
		for i, q := range qps[0] {
			_, err := qps[1][i].PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGList: p.b.sge(0, 16)}})
			check(t, err)
			_, err = q.PostSend([]verbs.SendWR{
				{WRID: 1, Opcode: verbs.WRRDMAWrite, RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey(), SGList: p.a.sge(0, 1024)},
				{WRID: 2, Opcode: verbs.WRSend, SGList: p.a.sge(0, 16)},
			})
			check(t, err)
		}
		d.mu.Lock()
		d.finishTurn(1)
		d.mu.Unlock()
		after := d.Counters()
		if n := after[SentPackets] - before[SentPackets]; n != 2*pairs {
			t.Fatalf("%d packets were sent, want %d", n, 2*pairs)
		}
		if n := after[SentTrains] - before[SentTrains]; n != 2 {
			t.Errorf("they left in %d trains, want 2", n)
		}
		for _, wc := range append(p.a.wait(2*pairs), p.b.wait(pairs)...) {
			if wc.Status != verbs.WCSuccess {
				t.Errorf("completion of %d: %v", wc.WRID, wc.Status)
			}
		}
		if n := d.Counters()[Retransmitted]; n != 0 {
			t.Errorf("%d packets were sent again", n)
		}
	})
}
