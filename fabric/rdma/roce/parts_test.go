package roce

import (
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestTrainsOfManyQueuePairs: when queue pairs each have a WRITE and a SEND for one peer, all WRITEs leave in one train
// and all SENDs in another, and each queue pair's order is kept.
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

// TestNobodyStarves: when there are more queue pairs than a batch has room for, each of which always has more to send,
// none waits for the others to end.
func TestNobodyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pairs, each = 12, 120
		p := newPair(t, pairConfig{mtu: verbs.MTU4096, memory: 1 << 20, depth: 128})
		qps := []verbs.QP{p.a.qp}
		for range pairs - 1 {
			p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
			p.connect(p.a, p.b)
			qps = append(qps, p.a.qp)
		}
		d := p.a.dev
		d.mu.Lock()
		d.takeTurn()
		d.mu.Unlock()
		for i, q := range qps {
			for range each {
				_, err := q.PostSend([]verbs.SendWR{{
					WRID: uint64(i), Opcode: verbs.WRRDMAWrite, RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey(), SGList: p.a.sge(0, 64<<10),
				}})
				check(t, err)
			}
		}
		d.mu.Lock()
		d.finishTurn(1)
		d.mu.Unlock()
		done := make([]int, pairs)
		for range pairs * each / 2 {
			wc := p.a.wait(1)[0]
			if wc.Status != verbs.WCSuccess {
				t.Fatalf("completion: %v", wc.Status)
			}
			done[wc.WRID]++
		}
		for i, n := range done {
			if n == 0 {
				t.Errorf("queue pair %d has done nothing of %d when half of all is done: %v", i, each, done)
			}
		}
		p.a.wait(pairs * each / 2)
	})
}
