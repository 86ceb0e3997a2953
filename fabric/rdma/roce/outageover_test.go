package roce

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestOutageOver: after an outage all queue pairs go on as soon as one of them hears something, however long each would
// still have waited before it tries again.
func TestOutageOver(t *testing.T) {
	eachKind(t, func(t *testing.T, op verbs.WROpcode, foreign bool) {
		const size, step = 4 << 10, 130 * time.Millisecond
		p := newPair(t, pairConfig{mtu: verbs.MTU4096, memory: size, timeout: 19, foreign: foreign})
		p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
		sides := []*side{p.a}
		for range 7 {
			s, far := another(p.a, p.cfg), another(p.b, p.cfg)
			p.connect(s, far)
			sides = append(sides, s)
		}
		move := func(s *side) {
			s.post(verbs.SendWR{Opcode: op, SGList: s.sge(0, size), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
		}
		for _, s := range sides {
			move(s)
			s.want(0, verbs.WCSuccess)
		}
		var mu sync.Mutex
		var done []time.Time
		for _, s := range sides {
			s.handle = func(*verbs.WC) {
				mu.Lock()
				defer mu.Unlock()
				done = append(done, time.Now())
			}
		}
		p.net.Cut(addrA, addrB)
		for _, s := range sides {
			move(s)
			time.Sleep(step)
		}
		time.Sleep(2 * time.Second)
		p.net.Restore(addrA, addrB)
		for _, s := range sides {
			s.want(0, verbs.WCSuccess)
		}
		synctest.Wait() // for the handlers
		if took, most := done[len(done)-1].Sub(done[0]), 5*time.Millisecond; took > most {
			t.Errorf("the last is done %v after the first, want at most %v", took, most)
		}
	}, verbs.WRRDMAWrite, verbs.WRRDMARead)
}

// TestGoneStaysHushed: what one queue pair hears doesn't make another one, whose other end is gone, try again.
func TestGoneStaysHushed(t *testing.T) {
	eachKind(t, func(t *testing.T, op verbs.WROpcode, foreign bool) {
		const size = 4 << 10
		p := newPair(t, pairConfig{mtu: verbs.MTU4096, memory: size, timeout: 19, foreign: foreign})
		p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
		gone, far := another(p.a, p.cfg), another(p.b, p.cfg)
		p.connect(gone, far)
		to := wire.QPN(far.qp.QPNum())
		check(t, far.qp.Destroy())
		var sent atomic.Int64
		p.net.SetFilter(func(d *simnet.Datagram) simnet.Action {
			if d.Dst.Addr() == addrB && wire.DestQPOf(d.Payload) == to {
				sent.Add(1)
			}
			return simnet.Action{}
		})
		move := func(s *side) {
			s.post(verbs.SendWR{Opcode: op, SGList: s.sge(0, size), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
		}
		move(gone)
		for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(time.Millisecond) {
			move(p.a)
			p.a.want(0, verbs.WCSuccess)
		}
		if n := sent.Load(); n > 20 { // ever more slowly
			t.Errorf("%d packets went to a queue pair that is gone", n)
		}
	}, verbs.WRRDMAWrite, verbs.WRRDMARead)
}

// TestOutageOverOnPath: what is heard after an outage has only those queue pairs of its path try again at once that
// wait because they heard nothing.
func TestOutageOverOnPath(t *testing.T) {
	const now, later = time.Minute, time.Minute + time.Second
	tab := newTurnTable(100, 100, 0, 0, 0, 0, 1)
	d := tab.d
	d.opened = time.Now()
	d.timer = time.NewTimer(time.Hour)
	defer d.timer.Stop()
	for _, q := range tab.qs {
		d.qps.all = append(d.qps.all, q)
		q.req.backoff, q.req.againAt, q.req.deadline = maxProbes+1, later, later
	}
	heard, waits, notReady, busy, elsewhere := &tab.qs[0].req, &tab.qs[1].req, &tab.qs[2].req, &tab.qs[3].req, &tab.qs[4].req
	heard.backoff, heard.deadline = 0, 0
	notReady.deadline, notReady.rnrUntil = 0, later // its peer has asked to wait
	busy.backoff = 0
	tab.qs[0].heard(now)
	if waits.deadline != now || waits.againAt != now || d.timerAt != now {
		t.Errorf("one that heard nothing tries again at %v, and the timer goes off at %v, want %v", waits.deadline, d.timerAt, now)
	}
	if heard.deadline != 0 || notReady.deadline != 0 {
		t.Error("one that waits for no answer has a timeout")
	}
	if busy.deadline != later || elsewhere.deadline != later {
		t.Errorf("one that isn't hushed tries again at %v, and one on another path at %v, want %v", busy.deadline, elsewhere.deadline, later)
	}
}
