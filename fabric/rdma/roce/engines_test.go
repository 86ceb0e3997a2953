package roce

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestNumbersOfEngines: the numbers of queue pairs say which device of an address they belong to, and are random
// otherwise: no bit is the same in all of many.
func TestNumbersOfEngines(t *testing.T) {
	for _, c := range []struct {
		cfg           Config
		fixed, random uint32
	}{
		{Config{}, 0, 0x7fffff},
		{Config{Engines: 1}, 0, 0x7fffff},
		{Config{Engines: 2}, 0x800000, 0x0fffff},
		{Config{Engines: 8, Engine: 5}, 0xd00000, 0x0fffff},
	} {
		table := newQPTable(&c.cfg)
		all, some := ^uint32(0), uint32(0)
		for range 500 {
			q := new(qp)
			table.add(q)
			all, some = all&q.num, some|q.num
		}
		if all != c.fixed || some != c.fixed|c.random {
			t.Errorf("%+v: in all numbers %#x, in some %#x", c.cfg, all, some)
		}
	}
}

// What txBatch.seal asks about destinations.
func always(netip.AddrPort) bool { return true }
func never(netip.AddrPort) bool  { return false }

// TestTrainsOfEngines: only packets for one engine of a peer share a train, since a kernel may give the whole of it to
// the socket of its first packet. Of the engines of a peer that isn't of our kind nothing is known. MADs are alone.
func TestTrainsOfEngines(t *testing.T) {
	dst := netip.MustParseAddrPort("192.0.2.2:4791")
	flow := wire.NewFlow(netip.MustParseAddrPort("192.0.2.1:4791"), dst)
	to := func(vendor uint32, num uint32) engine {
		q := &qp{}
		q.attr.DestQPN = num
		q.agree(&verbs.QPAttr{PeerVendorID: vendor, PathMTU: verbs.MTU1024})
		return q.peerEngine()
	}
	ours := func(num uint32) engine { return to(vendorID, num) }
	for _, c := range []struct {
		name   string
		to     []engine
		trains []int // packets of each
	}{
		{"one engine", []engine{ours(1 << 20), ours(2 << 20), ours(0x7fffff)}, []int{3}},
		{"several", []engine{ours(0x800002), ours(0x8fffff), ours(0x900002), ours(0xf00002), ours(0x900003)}, []int{2, 1, 1, 1}},
		{"a stranger's", []engine{to(0, 0x800002), to(0x2c9, 0x900002)}, []int{2}},
		{"MADs", []engine{noEngine, noEngine, ours(5), noEngine}, []int{1, 1, 1, 1}},
	} {
		b := newTxBatch()
		for _, e := range c.to {
			b.packet.Opcode = wire.RCSendOnly
			b.gathered = append(b.gathered[:0], make([]byte, 64))
			b.addTo(dst, e, flow, 0, 64, true)
		}
		b.seal(0, always, never)
		var got []int
		for i := range b.trains {
			got = append(got, b.trains[i].Datagrams())
		}
		if !slices.Equal(got, c.trains) {
			t.Errorf("%s: trains of %v packets, want %v", c.name, got, c.trains)
		}
	}
}
