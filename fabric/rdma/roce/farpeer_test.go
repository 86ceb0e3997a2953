package roce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// eachKind runs f for each of ops with a peer of our kind and with one of another kind.
func eachKind(t *testing.T, f func(t *testing.T, op verbs.WROpcode, foreign bool), ops ...verbs.WROpcode) {
	for _, op := range ops {
		for _, foreign := range []bool{false, true} {
			t.Run(fmt.Sprintf("opcode %d, foreign=%v", op, foreign), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { f(t, op, foreign) })
			})
		}
	}
}

// TestFarPeer: the round trip to a peer is learned even if it is longer than the first timeout, and from then on
// nothing is sent again.
func TestFarPeer(t *testing.T) {
	eachKind(t, func(t *testing.T, op verbs.WROpcode, foreign bool) {
		const latency, size = 60 * time.Millisecond, 8 // an atomic's
		p := newPair(t, pairConfig{timeout: 17, foreign: foreign})
		p.net.SetDefault(simnet.Link{Latency: latency})
		for range 20 {
			p.a.post(verbs.SendWR{Opcode: op, SGList: p.a.sge(0, size), RemoteAddr: p.b.mr.Addr()&^7 + 8, RKey: p.b.mr.RKey()})
			p.a.want(0, verbs.WCSuccess)
		}
		if n := p.a.dev.Counters()[Retransmitted]; n > 5 {
			t.Errorf("%d packets of 20 were sent again", n)
		}
		if rtt := p.a.dev.qpInfos()[0].RTT; rtt != 2*latency {
			t.Errorf("the round trip is taken for %v, want %v", rtt, 2*latency)
		}
	}, verbs.WRRDMAWrite, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd)
}

// TestTimeoutAfterRetry: an answer to something that was sent again is no sample of the round trip. What follows is
// given as long as that answer took, unless the known round trip says that the first transmission was lost.
func TestTimeoutAfterRetry(t *testing.T) {
	const packet = "RC_RDMA_WRITE_ONLY %d +10"
	post := func(r *rawPeer, psn int) {
		r.t.Helper()
		r.post(1, verbs.WRRDMAWrite, 10)
		r.expect(fmt.Sprintf(packet, psn))
	}
	ack := func(r *rawPeer, psn int) {
		r.t.Helper()
		r.send(r.ack(psn))
		r.dev.want(1, verbs.WCSuccess)
	}
	rawTest("nothing is known", t, func(t *testing.T, r *rawPeer) {
		post(r, 100)
		time.Sleep(50 * time.Millisecond)
		r.expect(fmt.Sprintf(packet, 100))
		ack(r, 100)
		post(r, 101)
		time.Sleep(90 * time.Millisecond)
		r.expect()
		ack(r, 101)
		if rtt := r.dev.dev.qpInfos()[0].RTT; rtt < 90*time.Millisecond || rtt > 91*time.Millisecond {
			t.Errorf("the round trip is taken for %v, want 90 ms", rtt)
		}
	})
	rawTest("it is longer now", t, func(t *testing.T, r *rawPeer) {
		post(r, 100)
		ack(r, 100)
		post(r, 101)
		time.Sleep(50 * time.Millisecond) // 30 of them since it was sent again
		r.expect(fmt.Sprintf(packet, 101))
		ack(r, 101)
		post(r, 102)
		time.Sleep(90 * time.Millisecond)
		r.expect()
		ack(r, 102)
	})
	rawTest("after an outage", t, func(t *testing.T, r *rawPeer) {
		post(r, 100)
		ack(r, 100)
		post(r, 101)
		for range 5 { // 20, 40, 80 … ms
			for len(r.answers()) == 0 {
				time.Sleep(minHold)
			}
		}
		ack(r, 101)
		post(r, 102)
		time.Sleep(2 * minEarlyTimeout)
		r.expect(fmt.Sprintf(packet, 102))
	})
}

// TestLossesBeforeSample: if one packet after the other is lost before any round trip is known, the wait for their
// retransmission doesn't become longer and longer.
func TestLossesBeforeSample(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		const lost, most = 20, 3 * minEarlyTimeout
		began := time.Now()
		for i := range lost {
			r.post(1, verbs.WRRDMAWrite, 10)
			for sent := 0; sent < 2; time.Sleep(minHold) {
				sent += len(r.answers())
			}
			r.send(r.ack(100 + i))
			r.dev.want(1, verbs.WCSuccess)
		}
		if took := time.Since(began); took > lost*most {
			t.Errorf("%d losses took %v, want at most %v each", lost, took, most)
		}
	})
}

// TestPeerMovesAway: a round trip that becomes far longer is learned, whichever retransmission the late answer follows,
// and however closely.
func TestPeerMovesAway(t *testing.T) {
	eachKind(t, func(t *testing.T, op verbs.WROpcode, foreign bool) {
		for _, ms := range []int{25, 45, 65, 85, 165, 320} {
			rtt := time.Duration(ms) * time.Millisecond
			p := newPair(t, pairConfig{timeout: 17, foreign: foreign})
			run := func(n int) {
				for range n {
					p.a.post(verbs.SendWR{Opcode: op, SGList: p.a.sge(0, 8), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
					p.a.want(0, verbs.WCSuccess)
				}
			}
			p.net.SetDefault(simnet.Link{Latency: time.Millisecond / 2})
			run(20)
			p.net.SetDefault(simnet.Link{Latency: rtt / 2})
			run(40)
			if got := p.a.dev.qpInfos()[0].RTT; got < rtt*9/10 || got > rtt*11/10 {
				t.Errorf("the round trip is taken for %v, want %v", got, rtt)
			}
			if n := p.a.dev.Counters()[Retransmitted]; n > 20 {
				t.Errorf("%v: %d packets of 40 were sent again", rtt, n)
			}
			p.close()
		}
	}, verbs.WRRDMAWrite, verbs.WRRDMARead)
}

// TestCrowdOnSlowLink: many queue pairs to one peer, whose packets are queued on the way for seconds, far longer than
// their ACK timeout, all go on, and use the link.
func TestCrowdOnSlowLink(t *testing.T) {
	eachKind(t, func(t *testing.T, op verbs.WROpcode, foreign bool) {
		const size, bandwidth = 16 << 10, 256 << 10
		config := crowdConfig(size)
		config.foreign, config.device.maxWindow = foreign, 1<<20
		p := newPair(t, config)
		c := p.inCrowd(op, size, simnet.Link{Latency: 50 * time.Microsecond, Bandwidth: bandwidth})
		time.Sleep(40 * time.Second) // including what was sent before the round trip was known
		const during = 20 * time.Second
		done := c.done.Load()
		time.Sleep(during)
		if n := c.failed.Load(); n > 0 {
			t.Errorf("%d of %d queue pairs have failed", n, crowdSize)
		}
		if moved, want := (c.done.Load()-done)*size, int64(bandwidth*during.Seconds()*8/10); moved < want {
			t.Errorf("%d bytes were moved, want at least %d", moved, want)
		}
		c.end()
	}, verbs.WRRDMAWrite, verbs.WRRDMARead)
}
