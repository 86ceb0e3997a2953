package roce

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// busyCQ makes a completion queue that fires again in each of its calls, rounds times: a receive that is posted to a
// queue pair in ERR is flushed at once. Each call calls begin first.
func (s *side) busyCQ(rounds int, begin func(round int)) {
	s.t.Helper()
	var q verbs.QP
	round := 0
	c, err := s.dev.CreateCQ(1, func(c verbs.CQ) {
		begin(round)
		c.Poll(make([]verbs.WC, 1))
		c.ReqNotify()
		if round++; round < rounds {
			if _, err := q.PostRecv([]verbs.RecvWR{{}}); err != nil {
				s.t.Error(err)
			}
		}
	})
	check(s.t, err)
	q, err = s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: c, RecvCQ: c, MaxRecvWR: 1})
	check(s.t, err)
	check(s.t, q.Modify(verbs.QPAttr{State: verbs.Err}))
	c.ReqNotify()
	_, err = q.PostRecv([]verbs.RecvWR{{}})
	check(s.t, err)
}

// TestEventsInTurn: the event of a queue pair that fails comes after the completion with the error, and doesn't wait
// for a completion queue that keeps firing.
func TestEventsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fails, last = 10, 1000
		p := newPair(t, pairConfig{})
		now, told, completed := 0, -1, false
		q, err := p.a.pd.CreateQP(verbs.QPInitAttr{
			Type: verbs.RC, SendCQ: p.a.cq, RecvCQ: p.a.cq, MaxRecvWR: 1,
			EventHandler: func(verbs.AsyncEvent) {
				p.a.mu.Lock()
				defer p.a.mu.Unlock()
				told, completed = now, len(p.a.got) > 0
			},
		})
		check(t, err)
		check(t, q.Modify(verbs.QPAttr{State: verbs.Init}))
		_, err = q.PostRecv([]verbs.RecvWR{{WRID: 7}})
		check(t, err)
		p.a.busyCQ(last, func(round int) {
			if now = round; now == fails {
				p.a.dev.mu.Lock()
				q.(*qp).toError(verbs.WCSuccess, verbs.EventQPFatal)
				p.a.dev.mu.Unlock()
			}
		})
		time.Sleep(time.Millisecond) // handlers are called by the timer, a few at a time
		synctest.Wait()
		p.a.want(7, verbs.WCWRFlushErr)
		if told != fails || !completed {
			t.Errorf("failed in round %d of %d, the event came in round %d, behind its completion: %v", fails, last, told, completed)
		}
	})
}
