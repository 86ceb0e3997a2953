package roce

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestDeadPeerLeavesHeld: all peers of a device share the memory for packets that arrive ahead of a lost one. Peers
// that die with a gap open, in one queue pair or in several, don't keep it from another peer, whose losses cost it
// hardly more than before.
func TestDeadPeerLeavesHeld(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		for _, c := range []struct{ peers, qps int }{{1, 1}, {1, 8}, {3, 1}} {
			t.Run(fmt.Sprintf("foreign=%v, %d peers of %d", foreign, c.peers, c.qps), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testDeadPeersHeld(t, c.peers, c.qps, foreign) })
			})
		}
	}
}

func testDeadPeersHeld(t *testing.T, peers, qps int, foreign bool) {
	const size, many = 128 << 10, 16
	p := newPair(t, pairConfig{
		mtu: verbs.MTU1024, memory: size, depth: many, timeout: 17, foreign: foreign,
		endpoint: simnet.Config{MTU: 1500, RecvBuffer: 64 << 20}, device: Config{maxWindow: 8 << 20},
	})
	p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
	write := func(s, to *side) (wrs []verbs.SendWR) {
		for range many {
			wrs = append(wrs, verbs.SendWR{
				Opcode: verbs.WRRDMAWrite, SGList: s.sge(0, size), RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey(),
			})
		}
		return wrs
	}
	again := func() uint64 {
		before := p.a.dev.Counters()[Retransmitted]
		seen := 0
		p.net.SetFilter(func(d *simnet.Datagram) simnet.Action {
			data := d.Src.Addr() == addrA && wire.Opcode(d.Payload[0]).Kind() == wire.KindWrite
			if data {
				seen++
			}
			return simnet.Action{Drop: data && seen%500 == 100}
		})
		for range 2 {
			p.a.post(write(p.a, p.b)...)
			p.a.wait(many)
		}
		p.net.SetFilter(nil)
		return p.a.dev.Counters()[Retransmitted] - before
	}
	alone := again()
	for i := range peers {
		dying := p.newSide(netip.AddrFrom4([4]byte{10, 0, 0, byte(3 + i)}))
		defer dying.dev.Close()
		sides := []*side{dying}
		for range qps - 1 {
			sides = append(sides, another(dying, p.cfg))
		}
		for _, s := range sides {
			to := another(p.b, p.cfg)
			p.connect(s, to)
			for range 3 { // opens the window
				s.post(write(s, to)...)
				s.wait(many)
			}
		}
		first := map[wire.QPN]bool{}
		p.net.SetFilter(func(d *simnet.Datagram) simnet.Action {
			q := wire.DestQPOf(d.Payload)
			drop := d.Src.Addr() == dying.dev.Attr().Addr && !first[q]
			first[q] = true
			return simnet.Action{Drop: drop}
		})
		for _, s := range sides {
			s.post(write(s, p.b)...)
		}
		p.net.Cut(dying.dev.Attr().Addr, addrB)
		p.net.Cut(addrB, dying.dev.Attr().Addr)
		time.Sleep(time.Millisecond)
		p.net.SetFilter(nil)
	}
	held := inside(p.b, func(q *qp) int { return q.d.held })
	if peers == 1 && held > maxHeld*2/3 {
		t.Errorf("%d bytes of %d are held of one peer that died", held, maxHeld)
	}
	if beside := again(); beside > alone+500 {
		t.Errorf("%d packets were sent again, before some peers died %d; %d bytes were held", beside, alone, held)
	}
}
