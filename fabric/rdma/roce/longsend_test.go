package roce

import (
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

const (
	rawMTU  = 256 // of connections with a raw peer
	rawLong = rawMTU + wire.LongSend
)

// longSendPeers are the kinds of peer that a device may meet, and whether a packet of a SEND carries more than the path
// MTU for each.
var longSendPeers = []struct {
	name   string
	config pairConfig
	agreed bool
}{
	{"agreed on", pairConfig{ours: true, options: OptionLongSend}, true},
	{"not agreed on", pairConfig{ours: true}, false},
	{"of another vendor, with the same option", pairConfig{options: OptionLongSend}, false},
	{"of another vendor", pairConfig{}, false},
}

// TestLongSendIsSent: only packets of SENDs carry more than the path MTU, and only to a peer that has agreed.
func TestLongSendIsSent(t *testing.T) {
	for _, c := range longSendPeers {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, c.config)
				send := func(n int, want ...string) {
					t.Helper()
					r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: r.dev.sge(0, n)})
					r.expect(want...)
				}
				switch {
				case c.agreed:
					send(rawLong, "RC_SEND_ONLY 100 +320")
					send(rawLong+1, "RC_SEND_FIRST 101 +164", "RC_SEND_LAST 102 +157")
				case c.config.ours:
					send(rawMTU, "RC_SEND_ONLY 100 +256")
					send(rawLong, "RC_SEND_FIRST 101 +160", "RC_SEND_LAST 102 +160")
				default:
					send(rawMTU, "RC_SEND_ONLY 100 +256")
					send(rawLong, "RC_SEND_FIRST 101 +256", "RC_SEND_LAST 102 +64")
				}
				r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWriteWithImm, SGList: r.dev.sge(0, rawLong), RemoteAddr: 1, RKey: 1})
				r.expect("RC_RDMA_WRITE_FIRST 103 +256", "RC_RDMA_WRITE_LAST_WITH_IMM 104 +64")
			})
		})
	}
}

// TestLongSendIsTaken: a longer packet is accepted from a peer that has agreed on it, only for a SEND and only if it
// has as much as was agreed on. Otherwise it is an invalid request (IBTA 9.7.4.1.6).
func TestLongSendIsTaken(t *testing.T) {
	for _, c := range longSendPeers {
		const invalid = "NAK invalid request 100 msn 0"
		for _, p := range []struct {
			name   string
			packet func(r *rawPeer) *wire.Packet
			want   string // where it was agreed on
		}{
			{"ONLY", func(r *rawPeer) *wire.Packet { return r.packet(wire.RCSendOnly, 100, rawLong) }, "ACK 100 msn 1"},
			{"longer ONLY", func(r *rawPeer) *wire.Packet { return r.packet(wire.RCSendOnly, 100, rawLong+4) }, invalid},
			{"FIRST", func(r *rawPeer) *wire.Packet { return r.packet(wire.RCSendFirst, 100, rawLong) }, "ACK 100 msn 0"},
			{"WRITE", func(r *rawPeer) *wire.Packet { return r.write(wire.RCWriteOnly, 100, rawLong, rawLong) }, invalid},
		} {
			t.Run(c.name+"/"+p.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRaw(t, c.config)
					r.dev.recv(1, r.dev.sge(1000, 4096)...)
					r.send(p.packet(r))
					if c.agreed {
						r.expect(p.want)
					} else {
						r.expect(invalid)
					}
				})
			})
		}
	}
}
