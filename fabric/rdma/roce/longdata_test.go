package roce

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// longDataPeers are the kinds of peer that a device may meet, with the data that a packet carries for each.
var longDataPeers = []struct {
	name   string
	config pairConfig
	data   int
}{
	{"jumbo frames", pairConfig{ours: true, options: OptionJumboData}, wire.JumboData},
	{"loopback", pairConfig{ours: true, options: OptionLongData, endpoint: simnet.Config{MTU: 65536}}, wire.LongData},
	{"both", pairConfig{ours: true, options: OptionJumboData | OptionLongData, endpoint: simnet.Config{MTU: 65536}}, wire.LongData},
	{"not agreed on", pairConfig{ours: true}, rawMTU},
	{"of another vendor, with the same option", pairConfig{options: OptionJumboData}, rawMTU},
}

// TestLongDataIsSent: packets of WRITEs and of answers to READs carry as much as was agreed on, those of SENDs the path
// MTU, and a READ has a PSN for each packet that answers it.
func TestLongDataIsSent(t *testing.T) {
	for _, c := range longDataPeers {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, c.config)
				r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: r.dev.sge(0, c.data+1), RemoteAddr: 1, RKey: 1})
				r.expect(fmt.Sprintf("RC_RDMA_WRITE_ONLY 100 +%d", c.data), "RC_RDMA_WRITE_ONLY 101 +1")
				r.send(r.read(100, 0, c.data+1))
				r.expect(fmt.Sprintf("RC_RDMA_READ_RESPONSE_FIRST 100 +%d", c.data), "RC_RDMA_READ_RESPONSE_LAST 101 +1")
				r.dev.post(
					verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, c.data), RemoteAddr: 1, RKey: 1},
					verbs.SendWR{WRID: 3, Opcode: verbs.WRSend, SGList: r.dev.sge(0, 2*rawMTU)},
				)
				r.expect("RC_RDMA_READ_REQUEST 102", "RC_SEND_FIRST 103 +256", "RC_SEND_LAST 104 +256")
			})
		})
	}
}

// TestLongDataIsTaken: as much data as was agreed on is accepted, and no more (IBTA 9.7.4.1.6), and only in WRITEs and
// answers.
func TestLongDataIsTaken(t *testing.T) {
	for _, c := range longDataPeers {
		run := func(name string, f func(t *testing.T, r *rawPeer)) {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { f(t, newRaw(t, c.config)) })
			})
		}
		run("WRITE", func(_ *testing.T, r *rawPeer) {
			r.send(r.write(wire.RCWriteOnly, 100, c.data, c.data))
			r.expect("ACK 100 msn 1")
		})
		run("longer WRITE", func(_ *testing.T, r *rawPeer) {
			r.send(r.write(wire.RCWriteOnly, 100, c.data+4, c.data+4))
			r.expect("NAK invalid request 100 msn 0")
		})
		run("answer", func(_ *testing.T, r *rawPeer) {
			r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, c.data), RemoteAddr: 1, RKey: 1})
			r.expect("RC_RDMA_READ_REQUEST 100")
			r.send(r.packet(wire.RCReadResponseOnly, 100, c.data))
			r.expect()
			r.dev.want(1, verbs.WCSuccess)
		})
		run("SEND", func(_ *testing.T, r *rawPeer) {
			r.dev.recv(1, r.dev.sge(0, 100<<10)...)
			r.send(r.packet(wire.RCSendOnly, 100, rawMTU+4))
			r.expect("NAK invalid request 100 msn 0")
		})
	}
}

// TestHeldIsBounded: however many packets arrive ahead of a lost one, long or short, the memory that holds them is
// bounded; once the lost one is here, what was held takes effect.
func TestHeldIsBounded(t *testing.T) {
	for _, c := range []struct{ bytes, most int }{{wire.JumboData, maxHeld / 2 / wire.JumboData}, {8, maxHeld / 2 / ordinaryPayload}} {
		t.Run(fmt.Sprint(c.bytes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, pairConfig{ours: true, options: OptionJumboData, endpoint: simnet.Config{MTU: 9000, RecvBuffer: 64 << 20}})
				for i := range c.most + 10 {
					p := r.write(wire.RCWriteOnly, 101+i, c.bytes, c.bytes)
					p.AckReq = false
					r.send(p)
				}
				r.answers()
				if n := r.dev.dev.held; n > maxHeld/2 {
					t.Errorf("%d bytes are held, want at most %d", n, maxHeld/2)
				}
				r.send(r.write(wire.RCWriteOnly, 100, 8, 8))
				r.expect("ACK 100 msn 1")
				r.send(r.write(wire.RCWriteOnly, 101+c.most, 8, 8))
				r.expect(fmt.Sprintf("ACK %d msn %d", 101+c.most, 2+c.most))
				if n := r.dev.dev.held; n != 0 {
					t.Errorf("%d bytes are held at the end", n)
				}
				for _, h := range r.dev.dev.heldPackets.free {
					if cap(h.payload) > ordinaryPayload {
						t.Fatalf("%d bytes are kept for the next payload", cap(h.payload))
					}
				}
			})
		})
	}
}

// TestOptionsNeedRoom: a device offers only options whose packets its interface carries, and makes no connection with
// others.
func TestOptionsNeedRoom(t *testing.T) {
	const (
		plain = OptionAckAlong
		short = plain | OptionLongSend | OptionWriteSend
		jumbo = short | OptionJumboData
		long  = jumbo | OptionLongData

		shortRoom = wire.MaxPathMTU + wire.LongSend + packetOverhead
		jumboRoom = wire.JumboData + wire.LongSend + packetOverhead
		longRoom  = wire.LongData + wire.LongSend + packetOverhead
	)
	for _, c := range []struct {
		link int // bytes
		want uint32
	}{
		{1500, short}, // the path MTU is 1024
		{shortRoom - 1, plain},
		{shortRoom, short},
		{jumboRoom - 1, short},
		{jumboRoom, jumbo},
		{9000, jumbo},
		{longRoom - 1, jumbo},
		{longRoom, long},
		{65536, long},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{endpoint: simnet.Config{MTU: c.link}})
			if got := p.a.dev.VendorOptions(); got != c.want {
				t.Errorf("options of an interface of %d bytes: %#x, want %#x", c.link, got, c.want)
			}
			q := p.a.newQP(p.cfg)
			for option := uint32(OptionNoICRC); option <= 2*OptionAckAlong; option <<= 1 {
				check(t, q.Modify(verbs.QPAttr{State: verbs.Reset}))
				check(t, q.Modify(verbs.QPAttr{State: verbs.Init}))
				err := q.Modify(verbs.QPAttr{
					State: verbs.RTR, Remote: addrB, PeerVendorID: vendorID, VendorOptions: option, DestQPN: 5, PathMTU: verbs.MTU1024,
				})
				if (err == nil) != ((c.want|OptionNoICRC)&option != 0) {
					t.Errorf("connecting with option %#x over an interface of %d bytes: %v", option, c.link, err)
				}
			}
		})
	}
}
