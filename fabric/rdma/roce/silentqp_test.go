package roce

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestSilentQPsLeaveWindow: queue pairs to one peer share its windows. Some whose other ends are gone, as those of a program
// that was killed and runs again, don't stop another one until they are given up.
func TestSilentQPsLeaveWindow(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
		for _, foreign := range []bool{false, true} {
			for _, gone := range []int{1, 8} {
				t.Run(fmt.Sprintf("opcode %d, %d gone, foreign=%v", op, gone, foreign), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testSilentQPs(t, op, gone, foreign) })
				})
			}
		}
	}
}

func testSilentQPs(t *testing.T, op verbs.WROpcode, gone int, foreign bool) {
	const size, many = 64 << 10, 8
	p := newPair(t, pairConfig{
		mtu: verbs.MTU4096, maxRd: 16, memory: many * size, timeout: 17, foreign: foreign,
		device: Config{MaxWindow: 256 << 10}, endpoint: simnet.Config{MTU: 9000, RecvBuffer: 1 << 20},
	})
	p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
	request := func(s, peer *side) (wrs []verbs.SendWR) {
		for i := range many {
			wrs = append(wrs, verbs.SendWR{
				WRID: uint64(i), Opcode: op, SGList: s.sge(i*size, size), RemoteAddr: peer.mr.Addr(), RKey: peer.mr.RKey(),
			})
		}
		return wrs
	}
	silent := make([]*side, gone)
	for i := range silent {
		far := another(p.b, p.cfg)
		silent[i] = another(p.a, p.cfg)
		p.connect(silent[i], far)
		for range 20 { // which opens the window
			silent[i].post(request(silent[i], far)...)
			silent[i].wait(many)
		}
		check(t, far.qp.Destroy())
	}
	for _, s := range silent {
		s.post(request(s, p.b)...)
	}
	for _, pause := range []time.Duration{time.Millisecond, 2 * time.Second} {
		time.Sleep(pause)
		began := time.Now()
		for range 20 {
			p.a.post(request(p.a, p.b)...)
			p.a.wait(many)
		}
		if took, most := time.Since(began), 200*time.Millisecond; took > most {
			t.Errorf("%v later: took %v, want at most %v; %s", pause, took, most, dump(p.a.dev))
		}
	}
	for _, s := range silent {
		if len(s.got) > 0 {
			t.Error("what was asked of a queue pair that is gone is over")
		}
		check(t, s.qp.Destroy())
	}
	if n := silentOnPath(p.a); n != 0 {
		t.Errorf("%d that have ended still count as silent", n)
	}
}

// TestSilenceEnds: after an outage in which a queue pair has fallen silent all that was lost is sent at once as soon as
// something is heard, and not a packet with each timeout.
func TestSilenceEnds(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		t.Run(fmt.Sprintf("foreign=%v", foreign), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 64 << 10
				p := newPair(t, pairConfig{mtu: verbs.MTU4096, memory: size, timeout: 19, foreign: foreign})
				p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
				p.net.SetFilter(func(*simnet.Datagram) simnet.Action { return simnet.Action{Drop: true} })
				p.a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, size), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
				for silentOnPath(p.a) == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				var heard atomic.Pointer[time.Time] // the first packet that passes
				p.net.SetFilter(func(*simnet.Datagram) simnet.Action {
					now := time.Now()
					heard.CompareAndSwap(nil, &now)
					return simnet.Action{}
				})
				p.a.want(0, verbs.WCSuccess)
				if took, most := time.Since(*heard.Load()), 5*time.Millisecond; took > most {
					t.Errorf("done %v after something was heard, want at most %v", took, most)
				}
			})
		})
	}
}

// TestSilentGoesOn: a queue pair that has heard nothing for a while, as what it sent was lost, goes on among many others to the
// same peer, which always have something to send.
func TestSilentGoesOn(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
		t.Run(fmt.Sprint("opcode ", op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testSilentGoesOn(t, op) })
		})
	}
}

func testSilentGoesOn(t *testing.T, op verbs.WROpcode) {
	const size, bandwidth, others, lost = 16 << 10, 32 << 20, 256, 4
	p := newPair(t, pairConfig{
		mtu: verbs.MTU4096, memory: size, timeout: 14, foreign: true,
		device: Config{MaxWindow: 64 << 10}, endpoint: simnet.Config{MTU: 9000, RecvBuffer: 4 << 20},
	})
	for _, link := range [][2]netip.Addr{{addrA, addrB}, {addrB, addrA}} {
		p.net.SetLink(link[0], link[1], simnet.Link{Latency: 50 * time.Microsecond, Bandwidth: bandwidth})
	}
	move := func(s *side) {
		s.post(verbs.SendWR{Opcode: op, SGList: s.sge(0, size), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
	}
	var stop atomic.Bool
	for range others {
		s, far := another(p.a, p.cfg), another(p.b, p.cfg)
		p.connect(s, far)
		s.handle = func(*verbs.WC) {
			if !stop.Load() {
				move(s)
			}
		}
		move(s)
	}
	time.Sleep(time.Second)
	sent, to := 0, wire.QPN(p.b.qp.QPNum())
	p.net.SetFilter(func(d *simnet.Datagram) simnet.Action {
		if d.Dst.Addr() != addrB || wire.DestQPOf(d.Payload) != to {
			return simnet.Action{}
		}
		sent++
		return simnet.Action{Drop: sent <= lost}
	})
	began := time.Now()
	move(p.a)
	p.a.want(0, verbs.WCSuccess)
	if took, most := time.Since(began), 2*time.Second; took > most {
		t.Errorf("done after %v, want at most %v", took, most)
	}
	if sent <= lost {
		t.Errorf("%d packets were sent, so that too few were lost", sent)
	}
	stop.Store(true)
	time.Sleep(20 * time.Second)
}

// silentOnPath is how many queue pairs are silent towards the peer of s.
func silentOnPath(s *side) int { return inside(s, func(q *qp) int { return q.path.silent }) }

// another is one more queue pair on the device of s, with the same memory.
func another(s *side, c pairConfig) *side {
	s.t.Helper()
	x := &side{t: s.t, dev: s.dev, pd: s.pd, mr: s.mr, buf: s.buf, wake: make(chan struct{}, 1)}
	var err error
	x.cq, err = x.dev.CreateCQ(4*c.depth, x.onCQ)
	check(s.t, err)
	x.cq.ReqNotify()
	x.qp = x.newQP(c)
	return x
}
