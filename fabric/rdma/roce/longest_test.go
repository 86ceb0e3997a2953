package roce

import (
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestLongestMessage: 2 GiB in packets of 256 bytes take half of all PSNs, so that the end of the message no longer
// counts as after its beginning. The window space of its last packets is given back all the same.
func TestLongestMessage(t *testing.T) {
	const packets = wire.MaxMessage / 256
	for _, ours := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRaw(t, pairConfig{ours: ours})
			q := r.dev.dev.qps.all[0]
			r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: r.dev.sge(0, 256)})
			r.expect("RC_SEND_ONLY 100 +256")

			// The last packet of such a message is what is outstanding.
			d := r.dev.dev
			d.mu.Lock()
			w := q.sq.at(q.req.head)
			w.packets, w.length = packets, packets*w.mtu
			w.first = wire.PSN(101).Add(-packets)
			if ours {
				q.scored()
			}
			d.mu.Unlock()

			ack := r.packet(wire.RCAcknowledge, 100, 0)
			ack.AETH.Syndrome = wire.ACK
			r.send(ack)
			r.dev.want(1, verbs.WCSuccess)
			if n := d.qpInfos()[0].InFlight; n != 0 {
				t.Errorf("of our kind %v: %d bytes are still counted", ours, n)
			}
			if n := q.path.window.inflight; n != 0 {
				t.Errorf("of our kind %v: %d bytes still in the window", ours, n)
			}
		})
	}
}
