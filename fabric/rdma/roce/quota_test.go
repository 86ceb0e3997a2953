package roce

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestQuota: of small requests a batch takes half of those that wait, within bounds, so that the peer works on them
// while the other half is put together. A large one among the next few isn't cut short.
func TestQuota(t *testing.T) {
	const mtu = 1024
	for _, c := range []struct {
		name           string
		waiting, large int // requests, and which of them is larger than a packet; -1 for none
		op             verbs.WROpcode
		want           int
	}{
		{"few", 10, -1, verbs.WRRDMAWrite, minQuota},
		{"many", 100, -1, verbs.WRRDMAWrite, 50},
		{"more than a batch takes", 1000, -1, verbs.WRRDMAWrite, qpQuota},
		{"a large one first", 100, 0, verbs.WRRDMAWrite, qpQuota},
		{"a large one soon", 100, quotaLooks - 1, verbs.WRRDMAWrite, qpQuota},
		{"a large one later", 100, quotaLooks, verbs.WRRDMAWrite, 50},
		{"a SEND that is one packet for the options agreed on", 100, 0, verbs.WRSend, 50},
	} {
		q := &qp{mtu: mtu, sendMTU: mtu + 64, sq: sendRing{ring: newRing[sendWQE](c.waiting, 1)}}
		for i := range uint32(c.waiting) {
			if int(i) == len(q.sq.slots) {
				q.sq.grow(0)
			}
			w := q.sq.at(i)
			if w.op, w.length = c.op, mtu; int(i) == c.large {
				w.length = mtu + 64
			}
		}
		q.req.tail = uint32(c.waiting)
		if got := q.quota(); got != c.want {
			t.Errorf("%s: a batch takes %d, want %d", c.name, got, c.want)
		}
	}
}
