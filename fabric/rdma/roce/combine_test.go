package roce

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestManyPosters posts from many goroutines and from handlers at once, over a network that
// loses now and then: every request completes once. The race detector looks on.
func TestManyPosters(t *testing.T) {
	const posters, each = 8, 300
	p := newPair(t, pairConfig{depth: 512, rnrRetry: 7, rnrTimer: 1, endpoint: simnet.Config{MTU: 9000, Coalesce: true}})
	p.net.SetDefault(simnet.Link{Loss: 0.0005})
	var served, answered atomic.Int64
	qps := make([]verbs.QP, posters)
	done := make(chan struct{})

	// b answers each SEND with one of its own, from its handler.
	serve := func(q *verbs.QP) func(verbs.CQ) {
		return func(cq verbs.CQ) {
			var wc [8]verbs.WC
			for {
				n := cq.Poll(wc[:])
				if n == 0 {
					if !cq.ReqNotify() {
						return
					}
					continue
				}
				for _, c := range wc[:n] {
					if c.Opcode != verbs.WCRecv || c.Status != verbs.WCSuccess {
						continue
					}
					served.Add(1)
					_, _ = (*q).PostRecv([]verbs.RecvWR{{WRID: c.WRID, SGList: p.b.sge(int(c.WRID)*64, 64)}})
					_, _ = (*q).PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGList: p.b.sge(int(c.WRID)*64, 64)}})
				}
			}
		}
	}
	collect := func(slots chan struct{}, q *verbs.QP) func(verbs.CQ) {
		return func(cq verbs.CQ) {
			var wc [8]verbs.WC
			for {
				n := cq.Poll(wc[:])
				if n == 0 {
					if !cq.ReqNotify() {
						return
					}
					continue
				}
				for _, c := range wc[:n] {
					switch {
					case c.Status != verbs.WCSuccess:
						t.Errorf("status %v", c.Status)
						close(done)
					case c.Opcode == verbs.WCRecv:
						_, _ = (*q).PostRecv([]verbs.RecvWR{{WRID: c.WRID, SGList: p.a.sge(int(c.WRID)*64, 64)}})
						slots <- struct{}{}
						if answered.Add(1) == posters*each {
							close(done)
						}
					}
				}
			}
		}
	}
	var wg sync.WaitGroup
	for i := range posters {
		slots := make(chan struct{}, each+16)
		for range 16 {
			slots <- struct{}{}
		}
		peer := new(verbs.QP)
		p.a.qp = p.makeQP(p.a, collect(slots, &qps[i]))
		p.b.qp = p.makeQP(p.b, serve(peer))
		qps[i], *peer = p.a.qp, p.b.qp
		p.connect(p.a, p.b)
		for k := range 32 {
			p.a.recv(uint64(i*32+k), p.a.sge((i*32+k)*64, 64)...)
			p.b.recv(uint64(i*32+k), p.b.sge((i*32+k)*64, 64)...)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range each {
				select {
				case <-slots:
				case <-done:
					return
				}
				if _, err := qps[i].PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGList: p.a.sge(128<<10+i*64, 64)}}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		t.Fatalf("%d served, %d answered of %d; %s\n%s", served.Load(), answered.Load(), posters*each, dump(p.a.dev), dump(p.b.dev))
	}
	wg.Wait()
}

func (p *pair) makeQP(s *side, handler func(verbs.CQ)) verbs.QP {
	p.t.Helper()
	cq, err := s.dev.CreateCQ(1024, handler)
	check(p.t, err)
	cq.ReqNotify()
	q, err := s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 512, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1})
	check(p.t, err)
	return q
}

// TestTearDownUnderLoad destroys queue pairs, memory and devices while they are busy.
func TestTearDownUnderLoad(t *testing.T) {
	for round := range 8 {
		p := newPair(t, pairConfig{endpoint: simnet.Config{MTU: 9000, Coalesce: true}})
		var wg sync.WaitGroup
		for _, s := range []*side{p.a, p.b} {
			peer := p.b
			if s == p.b {
				peer = p.a
			}
			q, key, addr := s.qp, peer.mr.RKey(), peer.mr.Addr()
			for range 2 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for {
						if _, err := q.PostSend([]verbs.SendWR{
							{Opcode: verbs.WRRDMAWrite, SGList: s.sge(0, 20000), RemoteAddr: addr + 100000, RKey: key},
							{Opcode: verbs.WRRDMARead, SGList: s.sge(30000, 20000), RemoteAddr: addr + 60000, RKey: key},
						}); err != nil && !isFull(err) {
							return
						}
						if q.Query().State == verbs.Err {
							return
						}
					}
				}()
			}
		}
		time.Sleep(time.Duration(round) * 400 * time.Microsecond)
		switch round % 4 {
		case 0:
			check(t, p.a.qp.Destroy())
			check(t, p.b.qp.Modify(verbs.QPAttr{State: verbs.Err}))
		case 1:
			check(t, p.b.mr.Dereg()) // the peer's requests are refused
			p.a.waitForState(verbs.Err)
			_ = p.b.qp.Modify(verbs.QPAttr{State: verbs.Err})
		case 2:
			check(t, p.a.dev.Close())
			check(t, p.b.dev.Close())
		case 3:
			check(t, p.a.qp.Modify(verbs.QPAttr{State: verbs.Err}))
			check(t, p.b.qp.Destroy())
		}
		wg.Wait()
	}
}

func (s *side) waitForState(want verbs.QPState) {
	s.t.Helper()
	for range 1000 {
		if s.qp.Query().State == want {
			return
		}
		select {
		case <-s.wake:
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.t.Fatal(dump(s.dev))
}
