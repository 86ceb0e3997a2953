package roce

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestManyPosters posts from many goroutines and from handlers at once, over a network that loses a packet now and
// then: every request completes once. It is a test for the race detector.
func TestManyPosters(t *testing.T) {
	const posters, each = 8, 300
	m := posting{
		pair:  newPair(t, pairConfig{depth: 512, timeout: patient, rnrRetry: 7, rnrTimer: 1, endpoint: simnet.Config{MTU: 9000, Coalesce: true}}),
		total: posters * each, done: make(chan struct{}),
	}
	m.finish = sync.OnceFunc(func() { close(m.done) })
	m.net.SetDefault(simnet.Link{Loss: 0.0005})
	var wg sync.WaitGroup
	for i := range posters {
		wg.Go(m.poster(i, each))
	}
	select {
	case <-m.done:
	case <-time.After(time.Minute):
		t.Fatalf("%d served, %d answered of %d; %s\n%s", m.served.Load(), m.answered.Load(), m.total, dump(m.a.dev), dump(m.b.dev))
	}
	wg.Wait()
}

// posting is a pair in which a sends messages from several goroutines, and b answers each.
type posting struct {
	*pair
	total            int64
	served, answered atomic.Int64
	done             chan struct{} // closed when everything is answered, or something failed
	finish           func()        // closes it
}

// poster connects the i-th queue pair, and returns a function that sends that many messages with it.
func (m *posting) poster(i, count int) func() {
	slots := make(chan struct{}, count+16)
	for range 16 {
		slots <- struct{}{}
	}
	q, peer := new(verbs.QP), new(verbs.QP)
	*q = m.makeQP(m.a, m.collect(slots, q))
	*peer = m.makeQP(m.b, m.serve(peer))
	m.a.qp, m.b.qp = *q, *peer
	m.connect(m.a, m.b)
	for k := range 32 {
		m.a.recv(uint64(i*32+k), m.a.sge((i*32+k)*64, 64)...)
		m.b.recv(uint64(i*32+k), m.b.sge((i*32+k)*64, 64)...)
	}
	return func() {
		for range count {
			select {
			case <-slots:
			case <-m.done:
				return
			}
			if _, err := (*q).PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGList: m.a.sge(128<<10+i*64, 64)}}); err != nil {
				m.t.Error(err)
			}
		}
	}
}

// serve is b's handler: it answers each SEND with one of its own.
func (m *posting) serve(q *verbs.QP) func(verbs.CQ) {
	return eachCompletion(func(c *verbs.WC) {
		if c.Opcode != verbs.WCRecv || c.Status != verbs.WCSuccess {
			return
		}
		m.served.Add(1)
		_, _ = (*q).PostRecv([]verbs.RecvWR{{WRID: c.WRID, SGList: m.b.sge(int(c.WRID)*64, 64)}})
		_, _ = (*q).PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGList: m.b.sge(int(c.WRID)*64, 64)}})
	})
}

// collect is a's handler: it counts answers, and permits one more message for each.
func (m *posting) collect(slots chan struct{}, q *verbs.QP) func(verbs.CQ) {
	return eachCompletion(func(c *verbs.WC) {
		switch {
		case c.Status != verbs.WCSuccess:
			m.t.Errorf("status %v", c.Status)
			m.finish()
		case c.Opcode == verbs.WCRecv:
			_, _ = (*q).PostRecv([]verbs.RecvWR{{WRID: c.WRID, SGList: m.a.sge(int(c.WRID)*64, 64)}})
			slots <- struct{}{}
			if m.answered.Add(1) == m.total {
				m.finish()
			}
		}
	})
}

// eachCompletion returns a handler that passes every completion to f.
func eachCompletion(f func(*verbs.WC)) func(verbs.CQ) {
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
			for i := range wc[:n] {
				f(&wc[i])
			}
		}
	}
}

func (p *pair) makeQP(s *side, handler func(verbs.CQ)) verbs.QP {
	p.t.Helper()
	cq, err := s.dev.CreateCQ(1024, handler)
	check(p.t, err)
	cq.ReqNotify()
	q, err := s.pd.CreateQP(verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 512, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1,
	})
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
				wg.Go(func() {
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
				})
			}
		}
		time.Sleep(time.Duration(round) * 400 * time.Microsecond)
		switch round % 4 {
		case 0:
			check(t, p.a.qp.Destroy())
			check(t, p.b.qp.Modify(verbs.QPAttr{State: verbs.Err}))
		case 1:
			check(t, p.b.mr.Dereg()) // the peer's requests are then refused
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
