package roce

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

const longest = wire.MaxMessage / 256 // packets

// makeLongest makes outstanding request i, of one packet, one of 2 GiB that begins at psn: the packet is then one of many.
func (r *rawPeer) makeLongest(i uint32, psn int) {
	d := r.dev.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.qps.all[0]
	w := q.sq.at(q.req.head + i)
	w.packets, w.length, w.first = longest, longest*w.mtu, wire.MakePSN(uint32(psn))
	if q.selective {
		q.scored()
	}
}

// TestLongestMessage: 2 GiB in packets of 256 bytes take half of all PSNs, so that the end of the message no longer
// counts as after its beginning. The window space of its last packets is given back all the same.
func TestLongestMessage(t *testing.T) {
	for _, ours := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRaw(t, pairConfig{ours: ours})
			q := r.dev.dev.qps.all[0]
			r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: r.dev.sge(0, 256)})
			r.expect("RC_SEND_ONLY 100 +256")

			r.makeLongest(0, 101-longest)
			ack := r.packet(wire.RCAcknowledge, 100, 0)
			ack.AETH.Syndrome = wire.ACK
			r.send(ack)
			r.dev.want(1, verbs.WCSuccess)
			if n := r.dev.dev.qpInfos()[0].InFlight; n != 0 {
				t.Errorf("of our kind %v: %d bytes are still counted", ours, n)
			}
			if n := q.path.window.inflight; n != 0 {
				t.Errorf("of our kind %v: %d bytes still in the window", ours, n)
			}
		})
	}
}

// TestBesideLongestMessage: other requests behind the longest message, and before it, go on as usual.
func TestBesideLongestMessage(t *testing.T) {
	for _, ours := range []bool{false, true} {
		both := func(name string, first verbs.WROpcode, f func(t *testing.T, r *rawPeer)) {
			t.Run(fmt.Sprintf("%s, of our kind %v", name, ours), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRaw(t, pairConfig{ours: ours})
					r.dev.post(verbs.SendWR{WRID: 1, Opcode: first, SGList: r.dev.sge(0, 256), RemoteAddr: 4096},
						verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: r.dev.sge(256, 256)})
					if got := r.answers(); len(got) != 2 {
						t.Fatalf("sent %q", got)
					}
					f(t, r)
				})
			})
		}
		acknowledge := func(r *rawPeer) {
			ack := r.packet(wire.RCAcknowledge, 101, 0)
			ack.AETH.Syndrome = wire.ACK
			r.send(ack)
		}
		both("one acknowledgement", verbs.WRSend, func(t *testing.T, r *rawPeer) {
			r.makeLongest(0, 101-longest)
			acknowledge(r)
			r.dev.want(1, verbs.WCSuccess)
			r.dev.want(2, verbs.WCSuccess)
			if n := r.dev.dev.qps.all[0].path.window.inflight; n != 0 {
				t.Errorf("%d bytes still in the window", n)
			}
		})
		both("the end of an answer is lost", verbs.WRRDMARead, func(t *testing.T, r *rawPeer) {
			r.makeLongest(0, 101-longest)
			acknowledge(r)
			if got := r.answers(); len(got) == 0 || got[0] != "RC_RDMA_READ_REQUEST 100" {
				t.Errorf("%q is sent, want the READ again", got)
			}
		})
		both("one before it", verbs.WRSend, func(t *testing.T, r *rawPeer) {
			r.makeLongest(1, 101)
			acknowledge(r)
			r.dev.want(1, verbs.WCSuccess)
			if n := r.dev.dev.qps.all[0].path.window.inflight; n != 0 {
				t.Errorf("%d bytes still in the window", n)
			}
		})
	}
}
