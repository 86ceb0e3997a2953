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
	check(t, s.qp.Modify(verbs.QPAttr{State: verbs.RTS, SQPSN: rawPSN, Timeout: 17, RetryCnt: 2, RNRRetry: 1, MaxRdAtomic: rawRate}))
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

// TestResponderSequence checks the responder's answers packet by packet (IBTA 9.7.5, 9.9.3).
func TestResponderSequence(t *testing.T) {
	rawTest("one ACK for a batch", t, func(t *testing.T, r *rawPeer) {
		for range 4 {
			r.dev.recv(0, r.dev.sge(0, 100)...)
		}
		r.send(r.packet(wire.RCSendOnly, 100, 10), r.packet(wire.RCSendOnly, 101, 10), r.packet(wire.RCSendOnly, 102, 10))
		r.expect("ACK 102 msn 3")
	})
	rawTest("a repetition takes no ACK back", t, func(t *testing.T, r *rawPeer) {
		first := r.write(wire.RCWriteOnly, 100, 4, 4)
		r.send(first, r.read(101, 0, 4), r.write(wire.RCWriteOnly, 102, 4, 4), first)
		r.expect("ACK 100 msn 1", "RC_RDMA_READ_RESPONSE_ONLY 101 +4", "ACK 102 msn 3")
	})
	rawTest("no ACK where none is asked for", t, func(t *testing.T, r *rawPeer) {
		p := r.write(wire.RCWriteOnly, 100, 10, 10)
		p.AckReq = false
		r.send(p)
		r.expect()
		r.send(r.write(wire.RCWriteOnly, 101, 10, 10))
		r.expect("ACK 101 msn 2")
	})
	rawTest("duplicates are acknowledged, not executed", t, func(t *testing.T, r *rawPeer) {
		r.dev.recv(0, r.dev.sge(1000, 100)...)
		r.dev.recv(1, r.dev.sge(2000, 100)...)
		r.send(r.packet(wire.RCSendOnly, 100, 10))
		r.expect("ACK 100 msn 1")
		r.dev.want(0, verbs.WCSuccess)
		r.send(r.packet(wire.RCSendOnly, 100, 10), r.packet(wire.RCSendOnly, 100, 10))
		r.expect("ACK 100 msn 1")
		if c := r.dev.dev.Counters(); c[DuplicateRequest] != 2 || len(r.dev.got) != 0 {
			t.Errorf("duplicate_request = %d, completions %v", c[DuplicateRequest], r.dev.got)
		}
	})
	rawTest("an ACK does not overtake a READ's data", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteOnly, 100, 4, 4), r.read(101, 0, 600), r.write(wire.RCWriteOnly, 104, 4, 4))
		r.expect("ACK 100 msn 1", "RC_RDMA_READ_RESPONSE_FIRST 101 +256", "RC_RDMA_READ_RESPONSE_MIDDLE 102 +256",
			"RC_RDMA_READ_RESPONSE_LAST 103 +88", "ACK 104 msn 3")
	})
	rawTest("READ of nothing needs no key", t, func(t *testing.T, r *rawPeer) {
		p := r.read(100, 0, 0)
		p.RETH = wire.RETH{}
		r.send(p)
		r.expect("RC_RDMA_READ_RESPONSE_ONLY 100")
		w := r.write(wire.RCWriteOnly, 101, 0, 0)
		w.RETH = wire.RETH{}
		r.send(w)
		r.expect("ACK 101 msn 2")
	})
}

// TestResponderNAKs checks which packets are refused, and how often that is reported (IBTA 9.7.5.1).
func TestResponderNAKs(t *testing.T) {
	rawTest("one NAK for a gap", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteOnly, 101, 4, 4), r.write(wire.RCWriteOnly, 102, 4, 4))
		r.expect("NAK PSN sequence error 100 msn 0")
		r.send(r.write(wire.RCWriteOnly, 103, 4, 4))
		r.expect()
		r.send(r.write(wire.RCWriteOnly, 100, 4, 4), r.write(wire.RCWriteOnly, 101, 4, 4))
		r.expect("ACK 103 msn 4") // what came ahead was held
		r.send(r.write(wire.RCWriteOnly, 105, 4, 4))
		r.expect("NAK PSN sequence error 104 msn 4")
	})
	rawTest("another NAK when the peer starts again without the lost packet", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteOnly, 101, 4, 4), r.write(wire.RCWriteOnly, 102, 4, 4))
		r.expect("NAK PSN sequence error 100 msn 0")
		r.send(r.write(wire.RCWriteOnly, 101, 4, 4), r.write(wire.RCWriteOnly, 102, 4, 4))
		r.expect("NAK PSN sequence error 100 msn 0")
	})
	rawTest("another NAK after a while", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteOnly, 101, 4, 4))
		r.expect("NAK PSN sequence error 100 msn 0")
		time.Sleep(nakAgain)
		r.send(r.write(wire.RCWriteOnly, 102, 4, 4))
		r.expect("NAK PSN sequence error 100 msn 0")
	})
	rawTest("RNR NAK, then silence until the same packet", t, func(t *testing.T, r *rawPeer) {
		r.send(r.packet(wire.RCSendOnly, 100, 10), r.packet(wire.RCSendOnly, 101, 10))
		r.expect("RNR NAK (640µs) 100 msn 0")
		time.Sleep(time.Second)
		r.send(r.packet(wire.RCSendOnly, 101, 10))
		r.expect()
		r.dev.recv(0, r.dev.sge(0, 100)...)
		r.send(r.packet(wire.RCSendOnly, 100, 10), r.packet(wire.RCSendOnly, 101, 10))
		r.expect("RNR NAK (640µs) 101 msn 1")
	})
}

// firstRead makes the READ that the tests of replay repeat: 1000 bytes, in packets 100 to 103.
func (r *rawPeer) firstRead() {
	r.t.Helper()
	fill(r.dev.buf[:2000], 1)
	r.send(r.read(100, 0, 1000))
	r.expect("RC_RDMA_READ_RESPONSE_FIRST 100 +256", "RC_RDMA_READ_RESPONSE_MIDDLE 101 +256",
		"RC_RDMA_READ_RESPONSE_MIDDLE 102 +256", "RC_RDMA_READ_RESPONSE_LAST 103 +232")
}

// TestReadReplay: a READ may be repeated, whole or from some packet on.
func TestReadReplay(t *testing.T) {
	rawTest("whole", t, func(t *testing.T, r *rawPeer) {
		r.firstRead()
		r.send(r.read(100, 0, 1000))
		if n := len(r.answers()); n != 4 {
			t.Errorf("%d packets", n)
		}
	})
	rawTest("tail", t, func(t *testing.T, r *rawPeer) {
		r.firstRead()
		r.send(r.read(102, 512, 488))
		r.expect("RC_RDMA_READ_RESPONSE_FIRST 102 +256", "RC_RDMA_READ_RESPONSE_LAST 103 +232")
		if string(r.got[0].Payload) != string(r.dev.buf[512:768]) {
			t.Error("other data")
		}
	})
	rawTest("one packet", t, func(t *testing.T, r *rawPeer) {
		r.firstRead()
		r.send(r.read(101, 256, 256))
		r.expect("RC_RDMA_READ_RESPONSE_ONLY 101 +256")
	})
	rawTest("a SEND repeated before a READ", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteOnly, 100, 4, 4), r.read(101, 0, 100), r.write(wire.RCWriteOnly, 102, 4, 4))
		r.answers()
		r.send(r.write(wire.RCWriteOnly, 100, 4, 4))
		r.expect("ACK 100 msn 3") // and not 102: the READ's data may be lost
		r.send(r.write(wire.RCWriteOnly, 100, 4, 4), r.read(101, 0, 100), r.write(wire.RCWriteOnly, 102, 4, 4))
		r.expect("ACK 100 msn 3", "RC_RDMA_READ_RESPONSE_ONLY 101 +100", "ACK 102 msn 3")
	})
	rawTest("a SEND repeated before two READs", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteOnly, 100, 4, 4), r.read(101, 0, 100), r.read(102, 0, 100))
		r.answers()
		r.send(r.write(wire.RCWriteOnly, 100, 4, 4))
		r.expect("ACK 100 msn 3") // and not 101: the data of both may be lost
	})
}

// TestReadReplayRefused: a repeated READ may ask for nothing that it didn't ask for before, and only while its key is
// valid. The connection goes on.
func TestReadReplayRefused(t *testing.T) {
	for name, p := range map[string]func(r *rawPeer) *wire.Packet{
		"other address": func(r *rawPeer) *wire.Packet { return r.read(102, 513, 100) },
		"longer":        func(r *rawPeer) *wire.Packet { return r.read(102, 512, 489) },
		"before it":     func(r *rawPeer) *wire.Packet { return r.read(99, 0, 100) },
		"other key": func(r *rawPeer) *wire.Packet {
			p := r.read(100, 0, 1000)
			p.RETH.RKey++
			return p
		},
		"another key of that memory": func(r *rawPeer) *wire.Packet {
			w, err := r.dev.pd.AllocMW()
			check(r.t, err)
			r.dev.post(verbs.SendWR{WRID: 9, Opcode: verbs.WRBindMW, MW: w, Bind: verbs.MWBind{
				MR: r.dev.mr, Addr: r.dev.mr.Addr(), Length: 1000, Access: verbs.AccessRemoteRead,
			}})
			r.dev.want(9, verbs.WCSuccess)
			p := r.read(100, 0, 1000)
			p.RETH.RKey = w.RKey()
			return p
		},
	} {
		rawTest(name, t, func(t *testing.T, r *rawPeer) {
			r.firstRead()
			r.send(p(r))
			r.expect()
			if st := r.dev.qp.Query().State; st != verbs.RTS {
				t.Errorf("state %v", st)
			}
		})
	}
	// A late repetition: the peer had the data, and the key has become invalid since.
	rawTest("dead key", t, func(t *testing.T, r *rawPeer) {
		r.firstRead()
		again := r.read(100, 0, 1000)
		check(t, r.dev.mr.Dereg())
		r.send(again)
		r.expect()
		if st := r.dev.qp.Query().State; st != verbs.RTS {
			t.Errorf("state %v", st)
		}
	})
}

// TestInvalidRequests: what violates the protocol is refused, and the connection falls silent.
func TestInvalidRequests(t *testing.T) {
	const invalid = "NAK invalid request"
	for _, c := range []struct {
		name    string
		packets func(r *rawPeer) []*wire.Packet
		want    string
	}{
		{"SEND MIDDLE first", func(r *rawPeer) []*wire.Packet { return []*wire.Packet{r.packet(wire.RCSendMiddle, 100, 256)} }, invalid + " 100 msn 0"},
		{"WRITE LAST first", func(r *rawPeer) []*wire.Packet { return []*wire.Packet{r.packet(wire.RCWriteLast, 100, 10)} }, invalid + " 100 msn 0"},
		{"FIRST inside a message", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.write(wire.RCWriteFirst, 100, 256, 600), r.write(wire.RCWriteFirst, 101, 256, 600)}
		}, invalid + " 101 msn 0"},
		{"SEND inside a WRITE", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.write(wire.RCWriteFirst, 100, 256, 600), r.packet(wire.RCSendOnly, 101, 5)}
		}, invalid + " 101 msn 0"},
		{"READ inside a WRITE", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.write(wire.RCWriteFirst, 100, 256, 600), r.read(101, 0, 10)}
		}, invalid + " 101 msn 0"},
		{"atomic inside a WRITE", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.write(wire.RCWriteFirst, 100, 256, 600), r.atomic(101, 1)}
		}, invalid + " 101 msn 0"},
		{"FIRST shorter than the MTU", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.write(wire.RCWriteFirst, 100, 252, 600)}
		}, invalid + " 100 msn 0"},
		{"FIRST longer than the MTU", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.write(wire.RCWriteFirst, 100, 260, 600)}
		}, invalid + " 100 msn 0"},
		{"ONLY longer than the MTU", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.write(wire.RCWriteOnly, 100, 257, 257)}
		}, invalid + " 100 msn 0"},
		{"empty LAST of a SEND", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.packet(wire.RCSendFirst, 100, 256), r.packet(wire.RCSendLast, 101, 0)}
		}, invalid + " 101 msn 0"},
		{"empty LAST", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.write(wire.RCWriteFirst, 100, 256, 256), r.packet(wire.RCWriteLast, 101, 0)}
		}, invalid + " 100 msn 0"},
		{"WRITE shorter than its RETH", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.write(wire.RCWriteOnly, 100, 10, 11)}
		}, invalid + " 100 msn 0"},
		{"WRITE longer than its RETH", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.write(wire.RCWriteFirst, 100, 256, 300), r.packet(wire.RCWriteLast, 101, 45)}
		}, invalid + " 101 msn 0"},
		{"WRITE of more than 2 GiB", func(r *rawPeer) []*wire.Packet {
			return []*wire.Packet{r.write(wire.RCWriteFirst, 100, 256, 1<<31+1)}
		}, invalid + " 100 msn 0"},
		{"READ of more than 2 GiB", func(r *rawPeer) []*wire.Packet { return []*wire.Packet{r.read(100, 0, 1<<31+1)} }, invalid + " 100 msn 0"},
		{"ATOMIC_WRITE", func(r *rawPeer) []*wire.Packet { return []*wire.Packet{r.packet(wire.RCAtomicWrite, 100, 8)} }, invalid + " 100 msn 0"},
		{"reserved opcode", func(r *rawPeer) []*wire.Packet { return []*wire.Packet{r.packet(0x1f, 100, 8)} }, invalid + " 100 msn 0"},
	} {
		rawTest(c.name, t, func(t *testing.T, r *rawPeer) {
			r.dev.recv(0, r.dev.sge(0, 4096)...)
			r.send(c.packets(r)...)
			r.expect(c.want)
			r.dev.want(0, verbs.WCWRFlushErr)
			if !r.dev.hasEvent(verbs.EventQPAccess) {
				t.Errorf("events %v", r.dev.events)
			}
			r.send(r.write(wire.RCWriteOnly, 100, 4, 4))
			r.expect()
		})
	}
}

// TestMalformed: a packet whose length doesn't match its headers and its pad, or of another version, has no effect even
// if its ICRC is good, and is never taken with the headers of the packet before.
func TestMalformed(t *testing.T) {
	for name, alter := range map[string]func(b []byte) []byte{
		"headers cut":     func(b []byte) []byte { return b[:wire.BTHSize+8] },
		"nothing but BTH": func(b []byte) []byte { return b[:wire.BTHSize] },
		"pad":             func(b []byte) []byte { b[1] |= 0x30; return b[:wire.BTHSize+wire.RETHSize] },
		"TVer":            func(b []byte) []byte { b[1] |= 1; return b },
	} {
		rawTest(name, t, func(t *testing.T, r *rawPeer) {
			r.send(r.write(wire.RCWriteOnly, 100, 0, 0))
			r.expect("ACK 100 msn 1")
			p := r.write(wire.RCWriteOnly, 101, 0, 0)
			b := alter(p.AppendHeader(nil))
			r.sendBytes(wire.AppendTrailer(b, 0, r.flow.ICRC(0, b)))
			r.expect()
			if c := r.dev.dev.Counters(); c[Malformed] != 1 || c[BadICRC] != 0 {
				t.Error(dump(r.dev.dev))
			}
			r.send(p)
			r.expect("ACK 101 msn 2")
		})
	}
}

// TestDroppedSilently: a packet that isn't for a queue pair, or not from its peer, has no effect.
func TestDroppedSilently(t *testing.T) {
	for _, c := range []struct {
		name    string
		alter   func(r *rawPeer, p *wire.Packet)
		counter Counter
	}{
		{"unknown QP", func(_ *rawPeer, p *wire.Packet) { p.DestQP ^= 1 }, NoQP},
		{"same index, other number", func(_ *rawPeer, p *wire.Packet) { p.DestQP ^= 1 << 23 }, NoQP},
		{"QP 0", func(_ *rawPeer, p *wire.Packet) { p.DestQP = 0 }, NoQP},
		{"P_Key", func(_ *rawPeer, p *wire.Packet) { p.PKey = 0x8001 }, BadPKey},
		{"UC opcode", func(_ *rawPeer, p *wire.Packet) { p.Opcode = 0x24 }, Malformed},
		{"UD to an RC queue pair", func(_ *rawPeer, p *wire.Packet) { p.Opcode = wire.UDSendOnly }, NoQP},
		{"ICRC", func(r *rawPeer, _ *wire.Packet) {
			r.flow = wire.NewFlow(netip.AddrPortFrom(addrA, 1), r.dst)
		}, BadICRC},
		{"response to nothing", func(_ *rawPeer, p *wire.Packet) {
			p.Opcode = wire.RCReadResponseOnly
		}, NumCounters},
		{"ACK of nothing", func(_ *rawPeer, p *wire.Packet) {
			p.Opcode, p.Payload = wire.RCAcknowledge, nil
			p.AETH.Syndrome = wire.ACK
		}, BadResponse},
		{"fatal NAK of nothing", func(_ *rawPeer, p *wire.Packet) {
			p.Opcode, p.Payload = wire.RCAcknowledge, nil
			p.AETH.Syndrome = wire.NAKRemoteAccessError
		}, BadResponse},
	} {
		rawTest(c.name, t, func(t *testing.T, r *rawPeer) {
			r.dev.recv(0, r.dev.sge(0, 100)...)
			p := r.packet(wire.RCSendOnly, 100, 10)
			c.alter(r, p)
			r.send(p)
			r.expect()
			if c.counter < NumCounters && r.dev.dev.Counters()[c.counter] != 1 {
				t.Errorf("%v is not 1: %s", c.counter, dump(r.dev.dev))
			}
			if st := r.dev.qp.Query().State; st != verbs.RTS {
				t.Errorf("state %v", st)
			}
		})
	}
	t.Run("other address", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{})
			conn, err := p.net.Listen(netip.MustParseAddrPort("10.0.0.3:4791"), simnet.Config{})
			check(t, err)
			r := &rawPeer{t: t, conn: conn, dev: p.b, dst: netip.AddrPortFrom(addrB, wire.Port)}
			r.flow = wire.NewFlow(conn.LocalAddr(), r.dst)
			r.send(r.write(wire.RCWriteOnly, 0, 10, 10))
			r.expect()
			if p.b.dev.Counters()[WrongPeer] != 1 || p.b.buf[0] != 0 {
				t.Error(dump(p.b.dev))
			}
		})
	})
}

// TestBadResponses: an answer that doesn't fit the question ends the connection.
func TestBadResponses(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(r *rawPeer) *wire.Packet
		status verbs.WCStatus
	}{
		{"too short", func(r *rawPeer) *wire.Packet { return r.packet(wire.RCReadResponseFirst, 100, 100) }, verbs.WCBadRespErr},
		{"too long", func(r *rawPeer) *wire.Packet { return r.packet(wire.RCReadResponseFirst, 100, 512) }, verbs.WCBadRespErr},
		{"ends early", func(r *rawPeer) *wire.Packet { return r.packet(wire.RCReadResponseLast, 100, 256) }, verbs.WCBadRespErr},
		{"atomic", func(r *rawPeer) *wire.Packet { return r.packet(wire.RCAtomicAcknowledge, 100, 0) }, verbs.WCBadRespErr},
		{"NAK", func(r *rawPeer) *wire.Packet {
			p := r.packet(wire.RCAcknowledge, 100, 0)
			p.AETH.Syndrome = wire.NAKRemoteAccessError
			return p
		}, verbs.WCRemAccessErr},
		{"reserved syndrome", func(r *rawPeer) *wire.Packet {
			p := r.packet(wire.RCAcknowledge, 100, 0)
			p.AETH.Syndrome = 0x80
			return p
		}, verbs.WCBadRespErr},
	} {
		rawTest(c.name, t, func(t *testing.T, r *rawPeer) {
			r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, 600), RemoteAddr: 1 << 40, RKey: 7})
			r.expect("RC_RDMA_READ_REQUEST 100")
			r.send(c.answer(r))
			r.dev.want(1, c.status)
		})
	}
}

// TestBadAtomicResponse: an atomic is answered by no READ response, though that brings as many bytes.
func TestBadAtomicResponse(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRAtomicFetchAndAdd, SGList: r.dev.sge(0, 8), RemoteAddr: 1 << 40, RKey: 7})
		r.expect("RC_FETCH_ADD 100")
		r.send(r.packet(wire.RCReadResponseOnly, 100, 8))
		r.dev.want(1, verbs.WCBadRespErr)
	})
}

// TestBadResponseAhead: an answer that doesn't fit its question, ahead of the answers to a READ before it, from a peer of
// our kind, ends the connection. That READ isn't complete.
func TestBadResponseAhead(t *testing.T) {
	for name, c := range map[string]struct {
		op     verbs.WROpcode // of the second request
		answer func(r *rawPeer) *wire.Packet
		status verbs.WCStatus // of the first request, which is the oldest
	}{
		"READ data for an atomic": {verbs.WRAtomicFetchAndAdd, func(r *rawPeer) *wire.Packet { return r.packet(wire.RCReadResponseOnly, 103, 8) }, verbs.WCBadRespErr},
		"a NAK for an atomic": {verbs.WRAtomicFetchAndAdd, func(r *rawPeer) *wire.Packet {
			p := r.packet(wire.RCAtomicAcknowledge, 103, 0)
			p.AETH.Syndrome = wire.NAKRemoteAccessError
			return p
		}, verbs.WCRemAccessErr},
		"a READ's, too short": {verbs.WRRDMARead, func(r *rawPeer) *wire.Packet { return r.packet(wire.RCReadResponseOnly, 103, 4) }, verbs.WCBadRespErr},
		"a READ's, with a NAK": {verbs.WRRDMARead, func(r *rawPeer) *wire.Packet {
			p := r.packet(wire.RCReadResponseOnly, 103, 8)
			p.AETH.Syndrome = wire.NAKRemoteAccessError
			return p
		}, verbs.WCBadRespErr},
		"an atomic's for READ": {verbs.WRRDMARead, func(r *rawPeer) *wire.Packet { return r.packet(wire.RCAtomicAcknowledge, 103, 0) }, verbs.WCBadRespErr},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, pairConfig{ours: true})
				r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, 600), RemoteAddr: 1 << 40, RKey: 7},
					verbs.SendWR{WRID: 2, Opcode: c.op, SGList: r.dev.sge(1000, 8), RemoteAddr: 1 << 40, RKey: 7})
				if n := len(r.answers()); n != 2 {
					t.Fatalf("%d requests", n)
				}
				r.send(c.answer(r))
				r.dev.want(1, c.status)
				r.dev.want(2, verbs.WCWRFlushErr)
				if st := r.dev.qp.Query().State; st != verbs.Err {
					t.Errorf("state %v", st)
				}
			})
		})
	}
}

// TestNoPlaceAhead: if the memory for an answer is gone when a later part of it arrives first, the READ fails, and not the
// SEND before it, which the peer has executed.
func TestNoPlaceAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, pairConfig{ours: true})
		m, err := r.dev.pd.RegMR(make([]byte, 600), verbs.AccessLocalWrite)
		check(t, err)
		r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: r.dev.sge(0, 8)}, verbs.SendWR{
			WRID: 2, Opcode: verbs.WRRDMARead, SGList: []verbs.SGE{{Addr: m.Addr(), Length: 600, LKey: m.LKey()}},
			RemoteAddr: 1 << 40, RKey: 7,
		})
		if n := len(r.answers()); n != 2 {
			t.Fatalf("%d requests", n)
		}
		check(t, m.Dereg())
		r.send(r.packet(wire.RCReadResponseMiddle, 102, 256))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCLocProtErr)
	})
}

// TestAnswersApart: neither an answer to what was never asked nor one that comes late changes how a READ's answer is taken.
func TestAnswersApart(t *testing.T) {
	late := func(r *rawPeer) *wire.Packet {
		p := r.packet(wire.RCAcknowledge, 99, 0)
		p.AETH.Syndrome = wire.NAKRemoteAccessError
		return p
	}
	for name, other := range map[string]func(r *rawPeer) *wire.Packet{
		"data never asked for": func(r *rawPeer) *wire.Packet { return r.packet(wire.RCReadResponseMiddle, 200, 256) },
		"late NAK":             late, // the MIDDLE behind it has no AETH
	} {
		rawTest(name, t, func(t *testing.T, r *rawPeer) {
			r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, 600), RemoteAddr: 1 << 40, RKey: 7})
			r.expect("RC_RDMA_READ_REQUEST 100")
			r.send(r.packet(wire.RCReadResponseFirst, 100, 256), other(r))
			r.expect()
			r.send(other(r), r.packet(wire.RCReadResponseMiddle, 101, 256), r.packet(wire.RCReadResponseLast, 102, 88))
			r.dev.want(1, verbs.WCSuccess)
			if n := r.dev.dev.Counters()[ImpliedNAKSeqErr]; n != 0 {
				t.Errorf("implied_nak_seq_err = %d", n)
			}
		})
	}
}

// TestPartialReadRetry: a peer may go on with MIDDLE at the packet where the retry began, as Linux does.
func TestPartialReadRetry(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, 1000), RemoteAddr: 1 << 40, RKey: 7})
		r.expect("RC_RDMA_READ_REQUEST 100")
		if h := r.got[0].RETH; h.VA != 1<<40 || h.RKey != 7 || h.Length != 1000 {
			t.Errorf("RETH %+v", h)
		}
		first, last := r.packet(wire.RCReadResponseFirst, 100, 256), r.packet(wire.RCReadResponseLast, 103, 232)
		r.send(first, last)
		r.expect("RC_RDMA_READ_REQUEST 101")
		if h := r.got[0].RETH; h.VA != 1<<40+256 || h.Length != 744 {
			t.Errorf("RETH of the retry %+v", h)
		}
		r.send(r.packet(wire.RCReadResponseMiddle, 101, 256), r.packet(wire.RCReadResponseMiddle, 102, 256), last)
		r.dev.want(1, verbs.WCSuccess)
		if c := r.dev.dev.Counters(); c[ImpliedNAKSeqErr] != 1 {
			t.Errorf("implied_nak_seq_err = %d", c[ImpliedNAKSeqErr])
		}
	})
}
