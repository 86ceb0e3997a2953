package roce

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestSilentQPsLeaveWindow: queue pairs to one peer share its windows. Those whose other ends are gone, as after a
// program was killed and restarted, don't stop another one until they are given up.
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
		device: Config{maxWindow: 256 << 10}, endpoint: simnet.Config{MTU: 9000, RecvBuffer: 1 << 20},
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
	p.a.checkWindows()
}

// TestSilenceEnds: after an outage in which a queue pair was hushed, everything that was lost is sent as soon as
// something is heard, rather than one packet with each timeout.
func TestSilenceEnds(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		t.Run(fmt.Sprintf("foreign=%v", foreign), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 48 << 10 // which leaves at once
				p := newPair(t, pairConfig{mtu: verbs.MTU4096, memory: size, timeout: 19, foreign: foreign})
				p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
				p.net.SetFilter(func(*simnet.Datagram) simnet.Action { return simnet.Action{Drop: true} })
				p.a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, size), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
				for hushed(p.a) == 0 {
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

// TestSilentCounts: what a queue pair sends because nothing was heard counts in the window for as long as it may take
// to arrive, and then no longer, until something is heard or it is sent again.
func TestSilentCounts(t *testing.T) {
	const n = 256 + packetCost // of a packet
	want := func(r *rawPeer, bytes int) {
		r.t.Helper()
		if got := inside(r.dev, func(q *qp) int { return q.path.window.inflight }); got != bytes {
			r.t.Errorf("%d bytes count in the window, want %d", got, bytes)
		}
	}
	silent := func(r *rawPeer) {
		r.t.Helper()
		want(r, n)
		time.Sleep(minHold)
		synctest.Wait()
		want(r, 0)
	}
	hush := func(r *rawPeer) {
		r.t.Helper()
		r.post(1, verbs.WRRDMAWrite, 3*256)
		for hushed(r.dev) == 0 {
			time.Sleep(minHold / 4)
			r.answers()
		}
		silent(r)
	}
	run := func(name string, c pairConfig, f func(r *rawPeer)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(newRaw(t, c)) })
		})
	}
	run("sent again", pairConfig{}, func(r *rawPeer) {
		r.post(1, verbs.WRRDMAWrite, 3*256)
		r.expect("RC_RDMA_WRITE_ONLY 100 +256", "RC_RDMA_WRITE_ONLY 101 +256", "RC_RDMA_WRITE_ONLY 102 +256")
		want(r, 3*n)
		time.Sleep(minHold)
		for i := range 3 {
			time.Sleep(minEarlyTimeout<<i - minHold)
			r.expect("RC_RDMA_WRITE_ONLY 100 +256")
			silent(r)
		}
	})
	run("a NAK", pairConfig{}, func(r *rawPeer) {
		hush(r)
		r.send(r.nak(wire.NAKPSNSequenceError, 100))
		r.expect("RC_RDMA_WRITE_ONLY 100 +256")
		silent(r)
		r.send(r.ack(100))
		r.expect("RC_RDMA_WRITE_ONLY 101 +256", "RC_RDMA_WRITE_ONLY 102 +256")
		want(r, 2*n)
		r.send(r.ack(102))
		r.dev.want(1, verbs.WCSuccess)
		want(r, 0)
	})
	run("a selective ACK", pairConfig{ours: true}, func(r *rawPeer) {
		hush(r)
		r.send(r.arrived(101, 1))
		r.expect("RC_RDMA_WRITE_ONLY 101 +256")
		want(r, n)
		r.send(r.ack(102))
		r.dev.want(1, verbs.WCSuccess)
		want(r, 0)
	})
	run("an ACK that goes along", pairConfig{ours: true, options: OptionAckAlong}, func(r *rawPeer) {
		hush(r)
		r.dev.recv(2, r.dev.sge(0, 100)...)
		send := r.packet(wire.RCSendOnly.WithAck(), 100, 10)
		send.AckPSN = 102
		r.send(send)
		r.dev.wait(2)
		want(r, 0)
	})
}

// TestSilentGoesOn: a queue pair that has heard nothing for a while, because what it sent was lost, goes on among many
// others to the same peer that always have something to send.
func TestSilentGoesOn(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
		t.Run(fmt.Sprint("opcode ", op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testSilentGoesOn(t, op) })
		})
	}
}

func testSilentGoesOn(t *testing.T, op verbs.WROpcode) {
	const size, lost = 16 << 10, 4
	p := newPair(t, crowdConfig(size))
	c := p.inCrowd(op, size, simnet.Link{Latency: 50 * time.Microsecond, Bandwidth: 32 << 20})
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
	c.move(p.a)
	p.a.want(0, verbs.WCSuccess)
	if took, most := time.Since(began), 2*time.Second; took > most {
		t.Errorf("done after %v, want at most %v", took, most)
	}
	if sent <= lost {
		t.Errorf("%d packets were sent, so that too few were lost", sent)
	}
	c.end()
}

// TestCrowdAfterOutage: many queue pairs to one peer that always have something to send all go on after an outage, and
// use the link as before.
func TestCrowdAfterOutage(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
		for _, foreign := range []bool{false, true} {
			t.Run(fmt.Sprintf("opcode %d, foreign=%v", op, foreign), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testCrowdAfterOutage(t, op, foreign) })
			})
		}
	}
}

func testCrowdAfterOutage(t *testing.T, op verbs.WROpcode, foreign bool) {
	const size, bandwidth, after = 16 << 10, 4 << 20, 4 * time.Second
	config := crowdConfig(size)
	config.foreign = foreign
	p := newPair(t, config)
	c := p.inCrowd(op, size, simnet.Link{Latency: 50 * time.Microsecond, Bandwidth: bandwidth})
	time.Sleep(time.Second)
	p.outage(100 * time.Millisecond)
	before, done := p.a.dev.Counters(), c.done.Load()
	time.Sleep(after)
	counters := p.a.dev.Counters()
	if n := c.failed.Load(); n > 0 {
		t.Errorf("%d of %d queue pairs have failed", n, crowdSize)
	}
	if moved, want := (c.done.Load()-done)*size, int64(bandwidth*after.Seconds()*8/10); moved < want {
		t.Errorf("%d bytes were moved, want at least %d", moved, want)
	}
	again, sent := counters[Retransmitted]-before[Retransmitted], counters[SentPackets]-before[SentPackets]
	if again > sent/10 {
		t.Errorf("%d packets of %d were sent again", again, sent)
	}
	c.end()
}

// TestCrowdAfterLongOutage: the same if each has lost what it had out, and the link has no room for more than the
// window, so that what was lost would be dropped again if it didn't wait for its turn.
func TestCrowdAfterLongOutage(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
		t.Run(fmt.Sprint("opcode ", op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 4 << 10
				config := crowdConfig(size)
				p := newPair(t, config)
				c := p.inCrowd(op, size, simnet.Link{Latency: 50 * time.Microsecond, Bandwidth: 4 << 20, Queue: config.device.maxWindow})
				time.Sleep(time.Second)
				p.outage(400 * time.Millisecond)
				time.Sleep(8 * time.Second)
				if n := c.failed.Load(); n > 0 {
					t.Errorf("%d of %d queue pairs have failed", n, crowdSize)
				}
				c.end()
			})
		})
	}
}

// outage cuts the network for a while.
func (p *pair) outage(d time.Duration) {
	p.net.Cut(addrA, addrB)
	p.net.Cut(addrB, addrA)
	time.Sleep(d)
	p.net.Restore(addrA, addrB)
	p.net.Restore(addrB, addrA)
}

// crowd is many queue pairs from one side of a pair to the other, in addition to the pair's. Each has a request
// outstanding at any time.
type crowd struct {
	p            *pair
	op           verbs.WROpcode
	size         int
	stop         atomic.Bool
	done, failed atomic.Int64
}

const crowdSize = 256

// crowdConfig returns the configuration of a pair for a crowd with requests of size bytes.
func crowdConfig(size int) pairConfig {
	return pairConfig{
		mtu: verbs.MTU4096, memory: size, timeout: 14, foreign: true,
		device: Config{maxWindow: 64 << 10}, endpoint: simnet.Config{MTU: 9000, RecvBuffer: 4 << 20},
	}
}

// inCrowd adds a crowd to p, with link between its sides.
func (p *pair) inCrowd(op verbs.WROpcode, size int, link simnet.Link) *crowd {
	p.net.SetLink(addrA, addrB, link)
	p.net.SetLink(addrB, addrA, link)
	c := &crowd{p: p, op: op, size: size}
	for range crowdSize {
		s, far := another(p.a, p.cfg), another(p.b, p.cfg)
		p.connect(s, far)
		s.handle = func(wc *verbs.WC) {
			if wc.Status != verbs.WCSuccess {
				c.failed.Add(1)
				return
			}
			c.done.Add(1)
			if !c.stop.Load() {
				c.move(s)
			}
		}
		c.move(s)
	}
	return c
}

// move posts a request of s, which is one of the crowd or the pair's.
func (c *crowd) move(s *side) {
	to := c.p.b.mr
	s.post(verbs.SendWR{Opcode: c.op, SGList: s.sge(0, c.size), RemoteAddr: to.Addr(), RKey: to.RKey()})
}

// end waits until nothing is outstanding.
func (c *crowd) end() {
	c.stop.Store(true)
	time.Sleep(20 * time.Second)
	synctest.Wait()
	c.p.a.checkWindows()
}

// hushed returns how many queue pairs of the device of s are hushed.
func hushed(s *side) int {
	return inside(s, func(q *qp) (n int) {
		for _, x := range q.d.qps.all {
			if x.hushed() {
				n++
			}
		}
		return n
	})
}

// another makes one more queue pair on the device of s, with the same memory.
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
