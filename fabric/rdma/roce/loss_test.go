package roce

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// mishap is what happens to one packet.
type mishap struct {
	name   string
	action simnet.Action
}

var mishaps = []mishap{
	{"lost", simnet.Action{Drop: true}},
	{"doubled", simnet.Action{Copies: 1}},
	{"late", simnet.Action{Delay: 3 * time.Millisecond}},
}

// unready is a SEND that comes before its receive is posted.
var unready = operation{"SEND before its receive", func(p *pair, n int) {
	fill(p.a.buf[:n], n)
	clear(p.b.buf[half:])
	p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: p.a.sge(0, n)})
	time.Sleep(5 * time.Millisecond)
	p.b.recv(7, p.b.sge(half, n+16)...)
	p.a.want(1, verbs.WCSuccess)
	p.b.want(7, verbs.WCSuccess)
	checkMoved(p.t, p.a.buf, p.b.buf[half:], n)
}}

// TestMishapToEachPacket loses, duplicates or delays each packet of each operation in turn, in both directions, between
// two devices of our kind and with a peer of another kind: the operation still succeeds, once.
func TestMishapToEachPacket(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		for _, m := range mishaps {
			for _, op := range append(operations[:len(operations):len(operations)], unready) {
				for _, n := range []int{0, 257, 9*256 + 1} {
					t.Run(fmt.Sprintf("foreign=%v/%s/%s/%d", foreign, m.name, op.name, n), func(t *testing.T) {
						c := pairConfig{foreign: foreign}
						for victim := 0; op.befalls(t, c, m.action, n, victim); victim++ {
						}
					})
				}
			}
		}
	}
}

// TestMishapToLongSend does the same to SENDs with packets that carry more than the path MTU.
func TestMishapToLongSend(t *testing.T) {
	for _, m := range mishaps {
		for _, op := range append(operations[:3:3], unready) {
			for _, n := range []int{256 + wire.LongSend, 257 + wire.LongSend, 5*(256+wire.LongSend) + 1} {
				t.Run(fmt.Sprintf("%s/%s/%d", m.name, op.name, n), func(t *testing.T) {
					c := pairConfig{options: OptionLongSend}
					for victim := 0; op.befalls(t, c, m.action, n, victim); victim++ {
					}
				})
			}
		}
	}
}

// TestMishapToLongData does the same to WRITEs and READs with packets that carry more than the path MTU.
func TestMishapToLongData(t *testing.T) {
	for _, m := range mishaps {
		for _, op := range operations {
			if !strings.HasPrefix(op.name, "RDMA_") {
				continue
			}
			for _, n := range []int{wire.JumboData, 3*wire.JumboData + 1} {
				t.Run(fmt.Sprintf("%s/%s/%d", m.name, op.name, n), func(t *testing.T) {
					c := pairConfig{options: OptionJumboData | OptionWriteSend}
					for victim := 0; op.befalls(t, c, m.action, n, victim); victim++ {
					}
				})
			}
		}
	}
}

// TestMishapToWriteSend does the same to a WRITE and the SEND that goes along with it.
func TestMishapToWriteSend(t *testing.T) {
	for _, m := range mishaps {
		for _, op := range operations {
			if !strings.HasPrefix(op.name, "RDMA_WRITE, ") {
				continue
			}
			for _, n := range []int{0, 1, 255, 256, 257} {
				t.Run(fmt.Sprintf("%s/%s/%d", m.name, op.name, n), func(t *testing.T) {
					c := pairConfig{options: OptionWriteSend}
					for victim := 0; op.befalls(t, c, m.action, n, victim); victim++ {
					}
				})
			}
		}
	}
}

// befalls runs the operation with n bytes on a pair like c, with a small path MTU, and has what happen to the packet
// number victim, counted from 0. It returns false if there are fewer packets.
func (op operation) befalls(t *testing.T, c pairConfig, what simnet.Action, n, victim int) (hit bool) {
	synctest.Test(t, func(t *testing.T) {
		c.mtu, c.psn, c.rnrRetry = verbs.MTU256, 0xfffff0, 7
		p := newPair(t, c)
		p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
		seen := 0
		p.net.SetFilter(func(*simnet.Datagram) simnet.Action {
			seen++
			if seen-1 == victim {
				hit = true
				return what
			}
			return simnet.Action{}
		})
		op.run(p, n)
		p.checkQuiet()
	})
	return hit
}

// checkQuiet checks that nothing is outstanding and no receive completion came twice.
func (p *pair) checkQuiet() {
	p.t.Helper()
	time.Sleep(time.Second + wire.AckTimeout(p.cfg.timeout))
	synctest.Wait()
	for _, s := range []*side{p.a, p.b} {
		s.mu.Lock()
		if len(s.got) > 0 {
			p.t.Errorf("completion too many: %+v", s.got)
		}
		s.mu.Unlock()
		for _, q := range s.dev.qpInfos() {
			if q.Outstanding != 0 || q.InFlight != 0 || q.ReadBytes != 0 || q.State != verbs.RTS {
				p.t.Errorf("left behind: %+v", q)
			}
		}
		s.checkWindows()
		s.dev.mu.Lock()
		if s.dev.timerAt != 0 {
			p.t.Errorf("timer at %v while idle", s.dev.timerAt)
		}
		s.dev.mu.Unlock()
	}
}

// checkWindows checks that nothing counts in any window of the device, which is idle.
func (s *side) checkWindows() {
	s.t.Helper()
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.readBytes != 0 || d.readers != 0 {
		s.t.Errorf("%d bytes of answers count at the device, of %d peers, while it is idle", d.readBytes, d.readers)
	}
	for _, p := range d.paths {
		if p.window.inflight != 0 || p.reads.inflight != 0 {
			s.t.Errorf("%d bytes of requests and %d of answers count in the windows of %v while it is idle",
				p.window.inflight, p.reads.inflight, p.remote)
		}
	}
}

// TestUnreliableNetwork runs a random mixture over bad links, and checks every byte.
func TestUnreliableNetwork(t *testing.T) {
	for _, link := range []simnet.Link{
		{Latency: 20 * time.Microsecond},
		{Latency: 20 * time.Microsecond, Loss: 0.001},
		{Latency: 100 * time.Microsecond, Loss: 0.02},
		{Latency: 100 * time.Microsecond, Loss: 0.01, Duplicate: 0.05, Corrupt: 0.01},
		{Latency: 2 * time.Millisecond, Loss: 0.005, Reorder: 0.02, Jitter: 50 * time.Microsecond},
		{Latency: 10 * time.Microsecond, Bandwidth: 100 << 20, Queue: 64 << 10},
	} {
		for _, coalesce := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v,%v", link, coalesce), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPair(t, pairConfig{
						mtu: verbs.MTU1024, psn: 0xffff00, depth: 32, rnrRetry: 7,
						endpoint: simnet.Config{MTU: 1500, RecvBuffer: 200 << 10, Coalesce: coalesce},
						memory:   4 << 20,
					})
					p.net.SetDefault(link)
					p.mixture(rand.New(rand.NewPCG(1, 2)), 150)
					p.checkQuiet()
				})
			})
		}
	}
}

// mixture keeps 16 operations of random kind and size outstanding from a to b, each with a
// slot of memory on either side, and checks each when it is complete.
func (p *pair) mixture(r *rand.Rand, count int) {
	const slots, slotSize = 16, 128 << 10
	const constant = slots * slotSize // offset of what b's READs find
	fill(p.b.buf[constant:], 1)
	want := make([][]byte, slots)
	kinds := make([]verbs.WROpcode, slots)
	post := func(slot int) {
		n := r.IntN(8 << 10)
		if r.IntN(8) == 0 {
			n = r.IntN(slotSize)
		}
		op := []verbs.WROpcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead}[r.IntN(3)]
		off := slot * slotSize
		remote := off
		kinds[slot] = op
		if op == verbs.WRRDMARead {
			// What is read doesn't change: a repetition may be answered after its requester is satisfied.
			remote = constant + r.IntN(slotSize)
			clear(p.a.buf[off : off+slotSize])
			want[slot] = p.b.buf[remote : remote+n]
		} else {
			fill(p.a.buf[off:off+n], r.Int())
			clear(p.b.buf[off : off+slotSize])
			want[slot] = p.a.buf[off : off+n]
		}
		if op == verbs.WRSend {
			// Receives are consumed in the order of the SENDs, which is that of the posts.
			p.b.recv(uint64(slot), p.b.sge(off, slotSize)...)
		}
		p.a.post(verbs.SendWR{
			WRID: uint64(slot), Opcode: op, SGList: p.a.sge(off, n),
			RemoteAddr: p.b.mr.Addr() + uint64(remote), RKey: p.b.mr.RKey(),
		})
	}
	for slot := range slots {
		post(slot)
	}
	for done := range count {
		wc := p.a.wait(1)[0]
		if wc.Status != verbs.WCSuccess {
			p.t.Fatalf("operation %d: %v; %s", done, wc.Status, dump(p.a.dev))
		}
		slot := int(wc.WRID)
		got := p.b.buf
		switch kinds[slot] {
		case verbs.WRSend:
			if rc := p.b.wait(1)[0]; rc.WRID != wc.WRID || rc.Status != verbs.WCSuccess || int(rc.ByteLen) != len(want[slot]) {
				p.t.Fatalf("receive %+v for %+v of %d bytes", rc, wc, len(want[slot]))
			}
		case verbs.WRRDMARead:
			got = p.a.buf
		}
		checkMoved(p.t, want[slot], got[slot*slotSize:], len(want[slot]))
		if done+slots < count {
			post(slot)
		}
	}
}

// TestSilentPeer: the ACK timeout and the retry count of the queue pair decide when it gives up.
func TestSilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{timeout: 14, retryCnt: 3})
		p.net.Cut(addrA, addrB)
		began := time.Now()
		p.a.recv(5, p.a.sge(0, 10)...)
		p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: p.a.sge(0, 10)},
			verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: p.a.sge(0, 10)})
		p.a.want(1, verbs.WCRetryExcErr)
		took := time.Since(began)
		// Timeout 14 is 67 ms: the first try and three more.
		if timeout := wire.AckTimeout(14); took < 4*timeout || took > 5*timeout {
			t.Errorf("gave up after %v, timeout is %v", took, timeout)
		}
		p.a.want(2, verbs.WCWRFlushErr)
		p.a.want(5, verbs.WCWRFlushErr)
		synctest.Wait()
		if !p.a.hasEvent(verbs.EventQPFatal) || p.a.qp.Query().State != verbs.Err {
			t.Errorf("events %v, state %v", p.a.events, p.a.qp.Query().State)
		}
		if c := p.a.dev.Counters(); c[LocalAckTimeoutErr] != 4 {
			t.Errorf("local_ack_timeout_err = %d, want 4", c[LocalAckTimeoutErr])
		}
	})
}

// TestNoTimeout: with Timeout 0 a silent peer is waited for without end.
func TestNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pairConfig{}.withDefaults()
		c.timeout = 0
		p := &pair{t: t, net: simnet.New(1), cfg: c}
		p.a, p.b = p.newSide(addrA), p.newSide(addrB)
		p.connect(p.a, p.b)
		t.Cleanup(p.close)
		p.net.Cut(addrA, addrB)
		p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: p.a.sge(0, 10)})
		time.Sleep(time.Hour)
		if n := len(p.a.got); n != 0 {
			t.Errorf("%d completions", n)
		}
	})
}

// TestNoNeedlessRetry: on a network that loses nothing no ACK is missing, whatever is unsignaled and however many queue
// pairs share the window, and nothing waits for a timer.
func TestNoNeedlessRetry(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
		for _, mtu := range []verbs.MTU{verbs.MTU256, verbs.MTU4096} {
			for _, size := range []int{64, 5000, 36 * mtu.Bytes()} {
				for _, qps := range []int{1, 5} {
					for _, signalEvery := range []int{1, 8} {
						name := fmt.Sprintf("op=%d,mtu=%d,size=%d,qps=%d,signal=%d", op, mtu.Bytes(), size, qps, signalEvery)
						t.Run(name, func(t *testing.T) {
							synctest.Test(t, func(t *testing.T) { streamWithoutRetry(t, op, mtu, size, qps, signalEvery) })
						})
					}
				}
			}
		}
	}
}

func streamWithoutRetry(t *testing.T, op verbs.WROpcode, mtu verbs.MTU, size, qps, signalEvery int) {
	p := newPair(t, pairConfig{mtu: mtu, unsignaled: true, depth: 64, endpoint: simnet.Config{MTU: 9000, Coalesce: true}})
	p.net.SetDefault(simnet.Link{Latency: 100 * time.Microsecond, Bandwidth: 1 << 30})
	p.stream(op, size, qps, signalEvery)
	p.checkQuiet()
	for _, s := range []*side{p.a, p.b} {
		if c := s.dev.Counters(); c[Retransmitted]+c[EarlyRetransmit]+c[DuplicateRequest] != 0 {
			t.Error(dump(s.dev))
		}
	}
}

// stream keeps 24 requests posted on each of several queue pairs until each has done 32, and
// checks that they take no longer than the network needs.
func (p *pair) stream(op verbs.WROpcode, size, qps, signalEvery int) {
	const each, window = 32, 24
	began := time.Now()
	queues := []verbs.QP{p.a.qp}
	for len(queues) < qps {
		p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
		p.connect(p.a, p.b)
		queues = append(queues, p.a.qp)
	}
	posted := make([]int, qps)
	post := func(i, n int) {
		for ; n > 0 && posted[i] < each; n-- {
			posted[i]++
			wr := verbs.SendWR{WRID: uint64(i), Opcode: op, SGList: p.a.sge(0, size), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()}
			if posted[i]%signalEvery == 0 {
				wr.Flags = verbs.SendSignaled
			}
			_, err := queues[i].PostSend([]verbs.SendWR{wr})
			check(p.t, err)
		}
	}
	for i := range queues {
		post(i, window)
	}
	for range qps * each / signalEvery {
		wc := p.a.wait(1)[0]
		if wc.Status != verbs.WCSuccess {
			p.t.Fatal(wc.Status)
		}
		post(int(wc.WRID), signalEvery)
	}
	bytes := qps * each * (size + 256*(1+size/p.cfg.mtu.Bytes()))
	if took, limit := time.Since(began), 20*time.Millisecond+time.Duration(float64(bytes)/(1<<29)*1e9); took > limit {
		p.t.Errorf("took %v, want at most %v", took, limit)
	}
}
