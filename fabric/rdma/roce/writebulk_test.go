package roce

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// TestSendsLeaveBesideWrites: WRITEs that fill batch after batch leave others' SENDs and READs room in the batch after
// next.
func TestSendsLeaveBesideWrites(t *testing.T) {
	for name, op := range map[string]verbs.WROpcode{"SEND": verbs.WRSend, "READ": verbs.WRRDMARead} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testSendsBesideWrites(t, op) })
		})
	}
}

func testSendsBesideWrites(t *testing.T, op verbs.WROpcode) {
	const large, many, batches = 1 << 20, 8, 4
	var before, after atomic.Int64 // bytes to B since the other request was posted: so far, and until it left
	var post atomic.Pointer[func()]
	to := netip.MustParseAddr("10.0.0.3")
	p := newPair(t, pairConfig{
		mtu: verbs.MTU4096, memory: large, device: Config{maxWindow: 2 * many * large},
		endpoint: simnet.Config{MTU: 9000, RecvBuffer: 2 * many * large},
		wrap: func(c udp.Conn) udp.Conn {
			return &sendSpy{Conn: c, sent: func(t *udp.Train) {
				if f := post.Swap(nil); f != nil {
					(*f)()
				}
				switch {
				case t.Dst.Addr() == to && before.Load() > 0:
					after.CompareAndSwap(0, before.Load())
				case t.Dst.Addr() == addrB:
					before.Add(int64(t.Bytes))
				}
			}}
		},
	})
	p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
	far := p.newSide(to)
	defer far.dev.Close()
	near := another(p.a, p.cfg)
	p.connect(near, far)
	far.recv(1, far.sge(0, 8)...)
	var wrs []verbs.SendWR
	for range many {
		wrs = append(wrs, verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, large), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
	}
	for range 8 { // which opens the window
		p.a.post(wrs...)
		p.a.wait(many)
	}
	f := func() {
		before.Store(0)
		near.post(verbs.SendWR{WRID: 2, Opcode: op, SGList: near.sge(0, 8), RemoteAddr: far.mr.Addr(), RKey: far.mr.RKey()})
	}
	post.Store(&f)
	p.a.post(wrs...)
	p.a.wait(many)
	near.want(2, verbs.WCSuccess)
	if got, most := after.Load(), int64(batches*batchBytes); got > most {
		t.Errorf("left after %d bytes of WRITEs, want at most %d", got, most)
	}
}

// sendSpy sees what is sent.
type sendSpy struct {
	udp.Conn
	sent func(*udp.Train)
}

func (s *sendSpy) Send(trains []udp.Train) (int, error) {
	for i := range trains {
		s.sent(&trains[i])
	}
	return s.Conn.Send(trains)
}
