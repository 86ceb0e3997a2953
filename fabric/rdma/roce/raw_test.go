package roce

import (
	"cmp"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// rawPeer is a peer made by hand: what it sends and receives are packets.
type rawPeer struct {
	t    *testing.T
	conn *simnet.Endpoint
	flow wire.Flow
	dst  netip.AddrPort
	dev  *side
	rx   [16]udp.Received
	got  []wire.Packet

	class uint8 // traffic class of what it sends
}

const (
	rawQPN  = 0x123456
	rawPSN  = 100 // first of either side
	rawRate = 8   // READs and atomics, both ways

	// rawLatency makes what is sent at once arrive at once.
	rawLatency = time.Microsecond
)

// newRaw makes a device at addrB whose queue pair is connected to a raw peer at addrA.
func newRaw(t *testing.T, c pairConfig) *rawPeer {
	t.Helper()
	p := &pair{t: t, net: simnet.New(1), cfg: c.withDefaults()}
	p.net.SetDefault(simnet.Link{Latency: rawLatency})
	s := p.newSide(addrB)
	conn, err := p.net.Listen(netip.AddrPortFrom(addrA, wire.Port), simnet.Config{MTU: p.cfg.endpoint.MTU})
	check(t, err)
	r := &rawPeer{t: t, conn: conn, dev: s, dst: netip.AddrPortFrom(addrB, wire.Port)}
	r.flow = wire.NewFlow(conn.LocalAddr(), r.dst)
	r.toRTR(p.cfg, rawRate)
	check(t, s.qp.Modify(verbs.QPAttr{State: verbs.RTS, SQPSN: rawPSN, Timeout: cmp.Or(c.timeout, 17), RetryCnt: 2, RNRRetry: 1, MaxRdAtomic: rawRate}))
	t.Cleanup(func() { _ = s.dev.Close() })
	return r
}

// toRTR moves the device's queue pair to RTR from any state, to answer that many READs and atomics at a time.
func (r *rawPeer) toRTR(c pairConfig, reads uint8) {
	r.t.Helper()
	var vendor uint32
	if c.ours {
		vendor = vendorID
	}
	for _, attr := range []verbs.QPAttr{
		{State: verbs.Reset},
		{State: verbs.Init, Access: c.access},
		{
			State: verbs.RTR, Remote: addrA, PeerVendorID: vendor, VendorOptions: c.options, DestQPN: rawQPN, PathMTU: verbs.MTU256,
			RQPSN: rawPSN, MaxDestRdAtomic: reads, MinRNRTimer: 12,
		},
	} {
		check(r.t, r.dev.qp.Modify(attr))
	}
}

// packet makes a packet with n bytes of payload for the device's queue pair.
func (r *rawPeer) packet(op wire.Opcode, psn int, n int) *wire.Packet {
	p := &wire.Packet{BTH: wire.BTH{
		Opcode: op, PKey: wire.DefaultPKey, DestQP: wire.QPN(r.dev.qp.QPNum()), PSN: wire.MakePSN(uint32(psn)), AckReq: true,
	}}
	p.Payload = make([]byte, n)
	fill(p.Payload, psn)
	return p
}

// read makes a READ request for n bytes at offset off.
func (r *rawPeer) read(psn, off, n int) *wire.Packet {
	p := r.packet(wire.RCReadRequest, psn, 0)
	p.RETH = wire.RETH{VA: r.dev.mr.Addr() + uint64(off), RKey: r.dev.mr.RKey(), Length: uint32(n)}
	return p
}

func (r *rawPeer) write(op wire.Opcode, psn, n, total int) *wire.Packet {
	p := r.packet(op, psn, n)
	p.RETH = wire.RETH{VA: r.dev.mr.Addr(), RKey: r.dev.mr.RKey(), Length: uint32(total)}
	return p
}

// atomic makes a FETCH_ADD of n to the first word of the device's memory.
func (r *rawPeer) atomic(psn int, n uint64) *wire.Packet {
	p := r.packet(wire.RCFetchAdd, psn, 0)
	p.AtomicETH = wire.AtomicETH{VA: r.dev.mr.Addr(), RKey: r.dev.mr.RKey(), SwapAdd: n}
	return p
}

// send sends packets in one batch.
func (r *rawPeer) send(ps ...*wire.Packet) {
	r.t.Helper()
	var datagrams [][]byte
	for _, p := range ps {
		datagrams = append(datagrams, p.Append(nil, r.flow, 0))
	}
	r.sendBytes(datagrams...)
}

func (r *rawPeer) sendBytes(datagrams ...[]byte) {
	r.t.Helper()
	var trains []udp.Train
	for _, b := range datagrams {
		trains = append(trains, udp.Train{Dst: r.dst, TrafficClass: r.class, Parts: [][]byte{b}, Bytes: len(b), SegmentSize: len(b)})
	}
	_, err := r.conn.Send(trains)
	check(r.t, err)
}

// answers returns what the device sends until it is idle.
func (r *rawPeer) answers() []string {
	r.t.Helper()
	time.Sleep(10 * rawLatency)
	synctest.Wait()
	var list []string
	r.got = nil
	for {
		n, err := r.conn.TryRecv(r.rx[:])
		check(r.t, err)
		if n == 0 {
			return list
		}
		back := wire.NewFlow(r.dst, r.conn.LocalAddr())
		for i := range n {
			id := uint16(0)
			for b := range r.rx[i].Datagrams() {
				b = append([]byte(nil), b...)
				if v, _ := back.Verify(b, id); v == wire.Bad {
					r.t.Fatalf("ICRC of %x", b)
				}
				var p wire.Packet
				check(r.t, wire.Parse(&p, b))
				if p.DestQP != rawQPN || p.PKey != wire.DefaultPKey {
					r.t.Fatalf("packet for QP %#x, P_Key %#x", p.DestQP, p.PKey)
				}
				r.got = append(r.got, p)
				list = append(list, describe(&p))
				id++
			}
		}
	}
}

func describe(p *wire.Packet) string {
	text := fmt.Sprintf("%v %d", p.Opcode, p.PSN)
	if p.Opcode == wire.RCAcknowledge {
		text = fmt.Sprintf("%v %d msn %d", p.AETH.Syndrome, p.PSN, p.AETH.MSN)
	}
	if p.Opcode.Headers()&wire.HasAckPSN != 0 {
		text += fmt.Sprintf(" ack %d", p.AckPSN)
	}
	if n := len(p.Payload); n > 0 {
		text += fmt.Sprintf(" +%d", n)
	}
	return text
}

func (r *rawPeer) expect(want ...string) {
	r.t.Helper()
	got := r.answers()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Fatalf("got  %q\nwant %q", got, want)
	}
}

func rawTest(name string, t *testing.T, f func(t *testing.T, r *rawPeer)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, newRaw(t, pairConfig{})) })
	})
}
