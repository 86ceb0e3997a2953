package roce

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestWaitForRoomIsNoRetry: the time that what is to be sent again waits for room that others occupy doesn't count
// towards the ACK timeout.
func TestWaitForRoomIsNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, slow = 64 << 10, 256 << 10 // bytes a second
		const peers, depth, lost = 8, 4, 2
		p := newPair(t, pairConfig{
			mtu: verbs.MTU4096, maxRd: 16, memory: size, timeout: 14, foreign: true,
			device: Config{maxWindow: 256 << 10}, endpoint: simnet.Config{MTU: 9000, RecvBuffer: 1 << 20},
		})
		p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
		read := func(s, from *side) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: s.sge(0, size), RemoteAddr: from.mr.Addr(), RKey: from.mr.RKey()}
		}
		var stop atomic.Bool
		for i := range peers {
			far := p.newSide(netip.AddrFrom4([4]byte{10, 0, 0, byte(3 + i)}))
			defer far.dev.Close()
			p.net.SetLink(far.dev.Attr().Addr, addrA, simnet.Link{Latency: 50 * time.Microsecond, Bandwidth: slow})
			s := another(p.a, p.cfg)
			p.connect(s, far)
			s.handle = func(*verbs.WC) {
				if !stop.Load() {
					s.post(read(s, far))
				}
			}
			for range depth {
				s.post(read(s, far))
			}
		}
		time.Sleep(time.Second)
		var sent []time.Time
		p.net.SetFilter(func(d *simnet.Datagram) simnet.Action {
			if d.Dst.Addr() != addrB || wire.Opcode(d.Payload[0]) != wire.RCReadRequest {
				return simnet.Action{}
			}
			sent = append(sent, time.Now())
			return simnet.Action{Drop: len(sent) <= lost}
		})
		before := p.a.dev.Counters()[LocalAckTimeoutErr]
		p.a.post(read(p.a, p.b))
		p.a.want(0, verbs.WCSuccess)
		if waited := sent[1].Sub(sent[0]); waited < 67*time.Millisecond {
			t.Fatalf("the READ was sent again after %v, which is no wait", waited)
		}
		if n := p.a.dev.Counters()[LocalAckTimeoutErr] - before; n > 0 {
			t.Errorf("%d ACK timeouts of a READ that was sent at %v", n, sent)
		}
		stop.Store(true)
		time.Sleep(20 * time.Second)
	})
}
