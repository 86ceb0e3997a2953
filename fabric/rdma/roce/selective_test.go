package roce

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// selectiveTest is rawTest with a peer that says it is of our kind.
func selectiveTest(name string, t *testing.T, f func(t *testing.T, r *rawPeer)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, newRaw(t, pairConfig{ours: true})) })
	})
}

// arrived makes a SelectiveAck for psn with a list of packets behind it.
func (r *rawPeer) arrived(psn int, list ...int) *wire.Packet {
	p := r.packet(wire.SelectiveAck, psn, 0)
	p.AckReq = false
	p.AETH.Syndrome = wire.NAKPSNSequenceError
	bits := make(wire.Arrived, slices.Max(list)/8+1)
	for _, i := range list {
		bits.Set(i)
	}
	p.Payload = bits
	return p
}

func (r *rawPeer) ack(psn int) *wire.Packet {
	p := r.packet(wire.RCAcknowledge, psn, 0)
	p.Payload, p.AckReq, p.AETH.Syndrome = nil, false, wire.ACK
	return p
}

func (r *rawPeer) nak(s wire.Syndrome, psn int) *wire.Packet {
	p := r.ack(psn)
	p.AETH.Syndrome = s
	return p
}

// TestSelectiveLists: what comes ahead is held and listed, and executed in order.
func TestSelectiveLists(t *testing.T) {
	selectiveTest("a list for each batch, an ACK at the end", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteOnly, 101, 4, 4), r.write(wire.RCWriteOnly, 103, 4, 4))
		r.expect("SELECTIVE_ACK 100 +1")
		if list := r.got[0].Payload; list[0] != 0b1010 {
			t.Errorf("list %08b", list[0])
		}
		r.send(r.write(wire.RCWriteOnly, 100, 4, 4))
		r.expect("SELECTIVE_ACK 102 +1")
		if a := r.got[0].AETH; r.got[0].Payload[0] != 0b10 || a.MSN != 2 || a.Syndrome != wire.NAKPSNSequenceError {
			t.Errorf("list %08b, %+v", r.got[0].Payload[0], a)
		}
		r.send(r.write(wire.RCWriteOnly, 102, 4, 4))
		r.expect("ACK 103 msn 4")
	})
	selectiveTest("a list where a gap begins, and where it is asked for", t, func(t *testing.T, r *rawPeer) {
		unasked := func(psn int) *wire.Packet {
			p := r.write(wire.RCWriteOnly, psn, 4, 4)
			p.AckReq = false
			return p
		}
		for _, c := range []struct {
			p    *wire.Packet
			want []string
		}{
			{unasked(101), []string{"SELECTIVE_ACK 100 +1"}},
			{unasked(102), nil},
			{unasked(103), nil},
			{unasked(105), []string{"SELECTIVE_ACK 100 +1"}},
			{unasked(106), nil},
			{r.write(wire.RCWriteOnly, 107, 4, 4), []string{"SELECTIVE_ACK 100 +1"}},
			{unasked(100), []string{"SELECTIVE_ACK 104 +1"}},
			{unasked(108), []string{"SELECTIVE_ACK 104 +1"}},
		} {
			r.send(c.p)
			r.expect(c.want...)
		}
		if list := r.got[0].Payload; list[0] != 0b11110 {
			t.Errorf("list %08b", list[0])
		}
	})
}

// TestSelectiveResponder: what is held is executed once, and only for a peer that is of our kind.
func TestSelectiveResponder(t *testing.T) {
	selectiveTest("held twice, executed once", t, func(t *testing.T, r *rawPeer) {
		for i := range 3 {
			r.dev.recv(uint64(i), r.dev.sge(100*i, 100)...)
		}
		r.send(r.packet(wire.RCSendOnly, 101, 5), r.packet(wire.RCSendOnly, 101, 5))
		r.expect("SELECTIVE_ACK 100 +1")
		r.send(r.packet(wire.RCSendOnly, 100, 6), r.packet(wire.RCSendOnly, 101, 5))
		r.expect("ACK 101 msn 2")
		if a, b := r.dev.want(0, verbs.WCSuccess), r.dev.want(1, verbs.WCSuccess); a.ByteLen != 6 || b.ByteLen != 5 {
			t.Errorf("messages of %d and %d bytes", a.ByteLen, b.ByteLen)
		}
	})
	selectiveTest("RNR drops what is held, and a lost RNR NAK is made up for", t, func(t *testing.T, r *rawPeer) {
		r.send(r.packet(wire.RCSendOnly, 101, 5))
		r.expect("SELECTIVE_ACK 100 +1")
		r.send(r.packet(wire.RCSendOnly, 100, 5))
		r.expect("RNR NAK (640µs) 100 msn 0")
		r.send(r.packet(wire.RCSendOnly, 102, 5))
		r.expect()
		time.Sleep(time.Millisecond)
		r.send(r.packet(wire.RCSendOnly, 102, 5))
		r.expect("SELECTIVE_ACK 100 +1")
		if list := r.got[0].Payload; list[0] != 0b100 {
			t.Errorf("list %08b", list[0])
		}
	})
	selectiveTest("a part of a READ", t, func(t *testing.T, r *rawPeer) {
		r.send(r.read(100, 0, 1000), r.read(101, 256, 256))
		r.expect("RC_RDMA_READ_RESPONSE_FIRST 100 +256", "RC_RDMA_READ_RESPONSE_FIRST 101 +256",
			"RC_RDMA_READ_RESPONSE_FIRST 102 +256", "RC_RDMA_READ_RESPONSE_LAST 103 +232", "RC_RDMA_READ_RESPONSE_ONLY 101 +256")
	})
	rawTest("nothing of it with another peer", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteOnly, 101, 4, 4))
		r.expect("NAK PSN sequence error 100 msn 0")
		r.send(r.arrived(100, 1))
		r.expect()
		if c := r.dev.dev.Counters(); c[Malformed] != 1 {
			t.Error(dump(r.dev.dev))
		}
	})
}

// writes has the device send a WRITE of that many packets.
func (r *rawPeer) writes(packets int) {
	r.t.Helper()
	r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: r.dev.sge(0, 256*packets), RemoteAddr: 1 << 40, RKey: 7})
	if n := len(r.answers()); n != packets {
		r.t.Fatalf("%d packets", n)
	}
}

// TestSelectiveRequester: what the peer lacks is sent again, and nothing else.
func TestSelectiveRequester(t *testing.T) {
	selectiveTest("holes", t, func(t *testing.T, r *rawPeer) {
		r.writes(6)
		r.send(r.arrived(101, 1, 4))
		r.expect("RC_RDMA_WRITE_ONLY 101 +256", "RC_RDMA_WRITE_ONLY 103 +256", "RC_RDMA_WRITE_ONLY 104 +256")
		r.send(r.arrived(101, 1, 4)) // an echo: they are on their way
		r.expect()
		r.send(r.ack(105))
		r.dev.want(1, verbs.WCSuccess)
		if c := r.dev.dev.Counters(); c[Retransmitted] != 3 || c[ImpliedNAKSeqErr] != 0 { // no answer was missing
			t.Error(dump(r.dev.dev))
		}
	})
	selectiveTest("a repetition that was overtaken is lost", t, func(t *testing.T, r *rawPeer) {
		r.writes(4)
		r.send(r.arrived(100, 2, 3))
		r.expect("RC_RDMA_WRITE_ONLY 100 +256", "RC_RDMA_WRITE_ONLY 101 +256")
		r.dev.post(verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMAWrite, SGList: r.dev.sge(0, 256), RemoteAddr: 1 << 40, RKey: 7})
		r.expect("RC_RDMA_WRITE_ONLY 104 +256")
		r.send(r.arrived(100, 2, 3, 4)) // what was sent for the first time after them
		r.expect("RC_RDMA_WRITE_ONLY 100 +256", "RC_RDMA_WRITE_ONLY 101 +256")
		r.send(r.arrived(100, 2, 3, 4))
		r.expect()
		r.send(r.ack(104))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCSuccess)
	})
	selectiveTest("what comes late, too soon to be its repetition, overtakes none", t, func(t *testing.T, r *rawPeer) {
		r.writes(4)
		time.Sleep(time.Millisecond) // the round trip
		inside(r.dev, func(q *qp) any { q.path.window.sent(2 * initialWindow); return nil })
		r.send(r.arrived(100, 2, 3))
		r.expect("RC_RDMA_WRITE_ONLY 100 +256")
		inside(r.dev, func(q *qp) any { q.path.window.withdrawn(2 * initialWindow); return nil })
		r.dev.post(verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMAWrite, SGList: r.dev.sge(0, 256), RemoteAddr: 1 << 40, RKey: 7})
		r.expect("RC_RDMA_WRITE_ONLY 101 +256", "RC_RDMA_WRITE_ONLY 104 +256")
		for range 2 { // the first list's news counts for the second
			r.send(r.arrived(100, 1, 2, 3))
			r.expect()
		}
		r.send(r.ack(104))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCSuccess)
	})
	selectiveTest("what was listed is missing after all", t, func(t *testing.T, r *rawPeer) {
		r.writes(3)
		r.send(r.arrived(100, 1))
		r.expect("RC_RDMA_WRITE_ONLY 100 +256")
		r.send(r.arrived(101, 1))
		r.expect("RC_RDMA_WRITE_ONLY 101 +256")
		r.send(r.ack(102))
		r.dev.want(1, verbs.WCSuccess)
	})
	selectiveTest("a plain NAK has the rest sent again, and nothing before it", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMAWrite, 8)
		r.post(2, verbs.WRRDMAWrite, 512)
		r.answers()
		r.send(r.nak(wire.NAKPSNSequenceError, 101))
		r.expect("RC_RDMA_WRITE_ONLY 101 +256", "RC_RDMA_WRITE_ONLY 102 +256")
		r.send(r.nak(wire.NAKPSNSequenceError, 101)) // an echo
		r.expect()
		r.dev.want(1, verbs.WCSuccess)
	})
	selectiveTest("the last packet of a list begins a request", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMAWrite, 8)
		r.post(2, verbs.WRRDMAWrite, 8)
		r.answers()
		r.send(r.arrived(100, 1))
		r.expect("RC_RDMA_WRITE_ONLY 100 +8")
		r.send(r.nak(wire.NAKPSNSequenceError, 100))
		r.expect()
	})
	selectiveTest("all that the peer held is sent again after an RNR NAK", t, func(t *testing.T, r *rawPeer) {
		for id := range uint64(3) {
			r.post(id, verbs.WRSend, 10)
		}
		r.expect("RC_SEND_ONLY 100 +10", "RC_SEND_ONLY 101 +10", "RC_SEND_ONLY 102 +10")
		r.send(r.arrived(100, 1, 2))
		r.expect("RC_SEND_ONLY 100 +10")
		r.send(r.nak(wire.RNRNAK(1), 100))
		r.expect()
		time.Sleep(wire.RNRTimer(1))
		r.expect("RC_SEND_ONLY 100 +10", "RC_SEND_ONLY 101 +10", "RC_SEND_ONLY 102 +10")
	})
	selectiveTest("the first missing packet leaves whatever others have in the window", t, func(t *testing.T, r *rawPeer) {
		r.writes(4)
		inside(r.dev, func(q *qp) any { q.path.window.sent(2 * initialWindow); return nil })
		r.send(r.arrived(100, 2, 3))
		r.expect("RC_RDMA_WRITE_ONLY 100 +256")
		r.send(r.ack(100))
		r.expect("RC_RDMA_WRITE_ONLY 101 +256")
	})
	selectiveTest("what arrives late, before there is room to send it again", t, func(t *testing.T, r *rawPeer) {
		r.writes(4)
		inside(r.dev, func(q *qp) any { q.path.window.sent(2 * initialWindow); return nil })
		r.send(r.arrived(100, 2, 3))
		r.expect("RC_RDMA_WRITE_ONLY 100 +256")
		r.send(r.arrived(100, 1, 2, 3))
		r.expect()
		inside(r.dev, func(q *qp) any { q.path.window.withdrawn(2 * initialWindow); return nil })
		r.send(r.ack(100))
		r.expect()
		r.send(r.ack(103))
		r.dev.want(1, verbs.WCSuccess)
		if q := r.dev.dev.qpInfos()[0]; q.InFlight != 0 {
			t.Errorf("%d bytes count as in flight", q.InFlight)
		}
	})
	selectiveTest("requests of all kinds", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMAWrite, 8)
		r.post(2, verbs.WRAtomicFetchAndAdd, 8)
		r.post(3, verbs.WRRDMAWrite, 8)
		r.post(4, verbs.WRRDMARead, 8)
		r.post(5, verbs.WRRDMAWrite, 8)
		r.answers()
		r.send(r.arrived(100, 4))
		r.expect("RC_RDMA_WRITE_ONLY 100 +8", "RC_FETCH_ADD 101", "RC_RDMA_WRITE_ONLY 102 +8", "RC_RDMA_READ_REQUEST 103")
	})
	gone := func(t *testing.T, r *rawPeer) { // the memory of the second of three
		m, err := r.dev.pd.RegMR(make([]byte, 8), verbs.AccessLocalWrite)
		check(t, err)
		r.post(1, verbs.WRRDMAWrite, 8)
		r.dev.post(verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: []verbs.SGE{{Addr: m.Addr(), Length: 8, LKey: m.LKey()}}})
		r.post(3, verbs.WRRDMAWrite, 8)
		r.answers()
		check(t, m.Dereg())
	}
	selectiveTest("the memory is gone", t, func(t *testing.T, r *rawPeer) {
		gone(t, r)
		r.send(r.arrived(101, 1))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCLocProtErr)
		r.dev.want(3, verbs.WCWRFlushErr)
	})
	selectiveTest("the memory is gone of what isn't the first that is lost", t, func(t *testing.T, r *rawPeer) {
		gone(t, r)
		r.send(r.arrived(100, 2))
		r.expect("RC_RDMA_WRITE_ONLY 100 +8")
		r.post(4, verbs.WRRDMAWrite, 8)
		r.expect() // it would come behind what fails
		r.send(r.arrived(101, 1))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCLocProtErr)
		r.dev.want(3, verbs.WCWRFlushErr)
		r.dev.want(4, verbs.WCWRFlushErr)
	})
	selectiveTest("the memory is gone of what had arrived", t, func(t *testing.T, r *rawPeer) {
		gone(t, r)
		r.send(r.arrived(100, 2))
		r.expect("RC_RDMA_WRITE_ONLY 100 +8")
		r.send(r.ack(102))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCSuccess)
		r.dev.want(3, verbs.WCSuccess)
		r.post(4, verbs.WRRDMAWrite, 8)
		r.expect("RC_RDMA_WRITE_ONLY 103 +8")
	})
	selectiveTest("a READ request is lost only if the list lacks it and has something behind it", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMAWrite, 8)
		r.post(2, verbs.WRRDMARead, 10)
		r.post(3, verbs.WRRDMARead, 10)
		r.post(4, verbs.WRRDMAWrite, 8)
		r.post(5, verbs.WRRDMARead, 10)
		r.expect("RC_RDMA_WRITE_ONLY 100 +8", "RC_RDMA_READ_REQUEST 101", "RC_RDMA_READ_REQUEST 102",
			"RC_RDMA_WRITE_ONLY 103 +8", "RC_RDMA_READ_REQUEST 104")
		r.send(r.arrived(100, 2, 3))
		r.expect("RC_RDMA_WRITE_ONLY 100 +8", "RC_RDMA_READ_REQUEST 101")
	})
}

// TestSelectiveRoom: what arrives behind a gap, and what silence makes lost, makes room in the windows, which other queue
// pairs take at once.
func TestSelectiveRoom(t *testing.T) {
	const packets = initialWindow / (256 + packetCost)
	for _, c := range []struct {
		name   string
		op     verbs.WROpcode // of another queue pair
		fill   func(r *rawPeer)
		answer func(r *rawPeer) *wire.Packet // nil: none
		want   string
	}{
		{"WRITEs that a list has", verbs.WRRDMAWrite, func(r *rawPeer) { r.writes(packets) },
			func(r *rawPeer) *wire.Packet { return r.arrived(100, 1, 2, 3) }, "RC_RDMA_WRITE_ONLY 1000 +8"},
		{"WRITEs behind a READ", verbs.WRRDMAWrite, func(r *rawPeer) {
			r.post(2, verbs.WRRDMARead, 8)
			r.post(1, verbs.WRRDMAWrite, 256*packets)
			r.answers()
		}, func(r *rawPeer) *wire.Packet { return r.ack(103) }, "RC_RDMA_WRITE_ONLY 1000 +8"},
		{"an answer", verbs.WRRDMARead, func(r *rawPeer) {
			r.post(1, verbs.WRRDMARead, initialWindow)
			r.answers()
		}, func(r *rawPeer) *wire.Packet { return r.packet(wire.RCReadResponseMiddle, 102, 256) }, "RC_RDMA_READ_REQUEST 1000"},
		{"WRITEs in silence", verbs.WRRDMAWrite, func(r *rawPeer) { r.writes(packets) }, nil, "RC_RDMA_WRITE_ONLY 1000 +8"},
	} {
		selectiveTest(c.name, t, func(t *testing.T, r *rawPeer) {
			c.fill(r)
			next := another(r.dev, pairConfig{}.withDefaults())
			for _, attr := range []verbs.QPAttr{
				{State: verbs.Init},
				{State: verbs.RTR, Remote: addrA, PeerVendorID: vendorID, DestQPN: rawQPN, PathMTU: verbs.MTU256, RQPSN: rawPSN},
				{State: verbs.RTS, SQPSN: 1000, Timeout: 17, MaxRdAtomic: rawRate},
			} {
				check(t, next.qp.Modify(attr))
			}
			next.post(verbs.SendWR{Opcode: c.op, SGList: next.sge(0, 8), RemoteAddr: 1 << 40, RKey: 7})
			r.expect()
			if c.answer != nil {
				r.send(c.answer(r))
			} else {
				time.Sleep(minEarlyTimeout)
			}
			if got := r.answers(); !slices.Contains(got, c.want) {
				t.Errorf("packets are %q, want %s among them", got, c.want)
			}
		})
	}
}

// TestScoreboardIsReused: the place of a PSN in the scoreboard is free for another one as soon as it is acknowledged,
// also if there is never a moment at which nothing is missing.
func TestScoreboardIsReused(t *testing.T) {
	const packets = scoreSize + 256
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, pairConfig{ours: true, memory: packets * 256})
		r.post(1, verbs.WRRDMARead, packets*256)
		part := func(i int) *wire.Packet { return r.packet(wire.RCReadResponseMiddle, 100+i, 256) }
		r.answers()
		r.send(part(1))
		for i := 0; i < packets; i += 2 { // what is behind the next gap arrives before this one is closed
			if i+3 < packets {
				r.send(part(i + 3))
			}
			r.send(part(i))
			r.answers()
		}
		r.dev.want(1, verbs.WCSuccess)
		want := make([]byte, 256)
		for i := range packets {
			if fill(want, 100+i); !bytes.Equal(want, r.dev.buf[256*i:256*i+256]) {
				t.Fatalf("packet %d isn't at its place", i)
			}
		}
	})
}

// TestScoreboardIsGivenBack: a queue pair has a scoreboard only while something is missing. Then it is for the next one
// that needs one.
func TestScoreboardIsGivenBack(t *testing.T) {
	selectiveTest("", t, func(t *testing.T, r *rawPeer) {
		type boards struct {
			has   bool
			spare int
		}
		have := func() boards {
			return inside(r.dev, func(q *qp) boards { return boards{q.req.score != nil, len(q.d.scoreboards.free)} })
		}
		for i := range 2 {
			first := 100 + 3*i
			r.writes(3)
			r.send(r.arrived(first, 1))
			r.answers()
			if got := have(); got != (boards{has: true}) {
				t.Errorf("round %d, something is missing: %+v", i, got)
			}
			r.send(r.ack(first + 2))
			r.dev.want(1, verbs.WCSuccess)
			if got := have(); got != (boards{spare: 1}) {
				t.Errorf("round %d, nothing is missing: %+v", i, got)
			}
		}
	})
}

// TestSelectiveSample: the round trip is measured once for each measured packet, by the arrival of that packet alone
// and not by that of others sent before it. One that is sent again isn't measured (Karn's algorithm; RFC 6298, section 3).
func TestSelectiveSample(t *testing.T) {
	lastOf := func(r *rawPeer) func() time.Duration {
		return func() time.Duration { return inside(r.dev, func(q *qp) time.Duration { return q.path.rttLast }) }
	}
	selectiveTest("lost", t, func(t *testing.T, r *rawPeer) {
		last := lastOf(r)
		r.writes(4) // as below
		r.post(2, verbs.WRRDMAWrite, 8)
		r.answers()
		r.send(r.arrived(100, 1, 2, 4))
		r.expect("RC_RDMA_WRITE_ONLY 100 +256", "RC_RDMA_WRITE_ONLY 103 +256")
		r.send(r.ack(104))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCSuccess)
		if got := last(); got != 0 {
			t.Errorf("%v was measured, but nothing was sent once and measured", got)
		}
	})
	selectiveTest("", t, func(t *testing.T, r *rawPeer) {
		last := lastOf(r)
		began := time.Now()
		r.writes(4) // the last one asks for an ACK, and is measured
		time.Sleep(time.Millisecond)
		r.send(r.arrived(100, 1))
		r.answers()
		if got := last(); got != 0 {
			t.Errorf("%v was measured, but the measured packet isn't known to have arrived", got)
		}
		r.send(r.arrived(100, 1, 3))
		took := time.Since(began) + rawLatency
		r.answers()
		if got := last(); got > took || got < took-2*rawLatency {
			t.Errorf("%v was measured, want %v", got, took)
		}
		measured := last()
		time.Sleep(time.Millisecond)
		r.send(r.ack(103))
		r.dev.want(1, verbs.WCSuccess)
		if got := last(); got != measured {
			t.Errorf("another %v was measured for the same packet", got)
		}
	})
}

// TestSelectiveWindow: the window opens by what arrives, and not by what is lost. If little is lost it isn't cut either,
// but is if much is.
func TestSelectiveWindow(t *testing.T) {
	const packets, cost = initialWindow / (256 + packetCost), 256 + packetCost
	selectiveTest("little is lost", t, func(t *testing.T, r *rawPeer) {
		r.writes(packets)
		r.send(r.arrived(100, 1, 2, 3))
		r.answers()
		if q := r.dev.dev.qpInfos()[0]; q.Window != initialWindow+3*cost || q.InFlight != (packets-3)*cost {
			t.Errorf("the window holds %d bytes, and %d are on their way; want %d and %d",
				q.Window, q.InFlight, initialWindow+3*cost, (packets-3)*cost)
		}
	})
	selectiveTest("much is lost", t, func(t *testing.T, r *rawPeer) {
		r.writes(packets)
		r.send(r.arrived(100, packets-1))
		r.answers()
		if q := r.dev.dev.qpInfos()[0]; q.Window != initialWindow/2 {
			t.Errorf("the window holds %d bytes, want %d", q.Window, initialWindow/2)
		}
	})
	selectiveTest("answers are lost", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMARead, initialWindow)
		r.answers()
		r.send(r.packet(wire.RCReadResponseMiddle, 102, rawMTU))
		r.answers()
		if n := inside(r.dev, func(q *qp) int { return q.path.reads.size }); n != initialWindow+rawMTU {
			t.Errorf("the window of READs holds %d bytes, want %d", n, initialWindow+rawMTU)
		}
		if n := r.dev.dev.Counters()[ImpliedNAKSeqErr]; n != 1 {
			t.Errorf("implied_nak_seq_err = %d", n)
		}
	})
}

// TestSelectiveReadWindow: if many answers are lost, the window of READs is cut, and no other.
func TestSelectiveReadWindow(t *testing.T) {
	selectiveTest("", t, func(t *testing.T, r *rawPeer) {
		const packets = initialWindow / rawMTU
		r.post(1, verbs.WRRDMARead, initialWindow)
		r.answers()
		r.send(r.packet(wire.RCReadResponseLast, 100+packets-1, rawMTU))
		r.answers()
		reads := inside(r.dev, func(q *qp) int { return q.path.reads.size })
		requests := inside(r.dev, func(q *qp) int { return q.path.window.size })
		if want := (initialWindow + rawMTU) / 2; reads != want || requests != initialWindow { // the answer that came counts
			t.Errorf("the window of READs holds %d bytes, that of requests %d; want %d and %d", reads, requests, want, initialWindow)
		}
	})
}

// TestSelectiveSilence: what no list reports is found out by asking.
func TestSelectiveSilence(t *testing.T) {
	selectiveTest("a probe leaves whatever the window holds", t, func(t *testing.T, r *rawPeer) {
		r.writes(1)
		r.send(r.ack(100)) // the round trip is known
		r.dev.want(1, verbs.WCSuccess)
		r.dev.post(verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMAWrite, SGList: r.dev.sge(0, 64<<10), RemoteAddr: 1 << 40, RKey: 7})
		sent := len(r.answers())
		p := new(wire.Packet)
		wire.MakeCNP(p, wire.QPN(r.dev.qp.QPNum()))
		r.send(p)
		r.expect() // the window holds half of what is on its way; all of that is lost
		if q := r.dev.dev.qpInfos()[0]; q.InFlight <= q.Window {
			t.Fatalf("%d bytes are on their way, the window holds %d", q.InFlight, q.Window)
		}
		time.Sleep(minProbeTimeout + 100*time.Microsecond)
		last := 100 + sent
		r.expect(fmt.Sprintf("RC_RDMA_WRITE_ONLY %d +256", last))
	})
	selectiveTest("an ACK lost after everything was held", t, func(t *testing.T, r *rawPeer) {
		r.writes(2)
		r.send(r.arrived(100, 1))
		r.expect("RC_RDMA_WRITE_ONLY 100 +256")
		r.send(r.ack(100))
		r.expect()
		time.Sleep(10 * time.Millisecond)
		if got := r.answers(); len(got) == 0 || got[0] != "RC_RDMA_WRITE_ONLY 101 +256" {
			t.Errorf("after silence: %q", got)
		}
		r.send(r.ack(101))
		r.dev.want(1, verbs.WCSuccess)
	})
	selectiveTest("a probe is the last packet that was sent", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMAWrite, 300)
		r.post(2, verbs.WRRDMAWrite, 300)
		r.answers()
		time.Sleep(minEarlyTimeout)
		r.expect("RC_RDMA_WRITE_ONLY 103 +44")
	})
	selectiveTest("what was sent again before is sent again, rather than a probe", t, func(t *testing.T, r *rawPeer) {
		r.writes(3)
		r.send(r.arrived(100, 1, 2))
		r.expect("RC_RDMA_WRITE_ONLY 100 +256")
		time.Sleep(minHold)
		r.expect("RC_RDMA_WRITE_ONLY 100 +256")
	})
	for name, c := range map[string]struct {
		answered, psn, bytes int
	}{
		"a READ that the peer may not have seen is asked for as a whole": {0, 100, 1000},
		"the end of a READ whose answer has begun is asked for":          {1, 103, 232},
	} {
		selectiveTest(name, t, func(t *testing.T, r *rawPeer) {
			r.post(1, verbs.WRRDMARead, 1000)
			r.expect("RC_RDMA_READ_REQUEST 100")
			for i := range c.answered {
				r.send(r.packet(wire.RCReadResponseFirst, 100+i, 256))
			}
			for len(r.answers()) == 0 {
				time.Sleep(minHold)
			}
			if p := r.got[0]; int(p.PSN) != c.psn || int(p.RETH.Length) != c.bytes || p.RETH.VA != 1<<40+uint64(c.psn-100)*256 {
				t.Errorf("READ %d of %d bytes at %#x", p.PSN, p.RETH.Length, p.RETH.VA)
			}
		})
	}
	selectiveTest("what was sent last is asked for, though a WRITE behind it waits for room", t, func(t *testing.T, r *rawPeer) {
		r.writes(initialWindow / (256 + packetCost))
		r.post(2, verbs.WRRDMARead, 10)
		r.post(3, verbs.WRRDMAWrite, 8)
		last := 100 + initialWindow/(256+packetCost)
		r.expect(fmt.Sprintf("RC_RDMA_READ_REQUEST %d", last))
		time.Sleep(minEarlyTimeout)
		r.expect(fmt.Sprintf("RC_RDMA_READ_REQUEST %d", last))
		r.send(r.packet(wire.RCReadResponseOnly, last, 10))
		r.dev.wait(2)
		r.expect(fmt.Sprintf("RC_RDMA_WRITE_ONLY %d +8", last+1))
		r.send(r.ack(last + 1))
		r.dev.want(3, verbs.WCSuccess)
		r.dev.checkWindows()
	})
	selectiveTest("answers that are here are never asked for again", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMARead, 1000)
		r.expect("RC_RDMA_READ_REQUEST 100")
		r.send(r.packet(wire.RCReadResponseMiddle, 101, 256), r.packet(wire.RCReadResponseMiddle, 102, 256),
			r.packet(wire.RCReadResponseLast, 103, 232))
		for wasHushed := false; !wasHushed; {
			wasHushed = hushed(r.dev) > 0
			for range r.answers() {
				if p := r.got[0]; p.PSN != 100 || p.RETH.Length != 256 {
					t.Fatalf("READ %d of %d bytes", p.PSN, p.RETH.Length)
				}
			}
			time.Sleep(minHold)
		}
	})
}

// TestSelectiveReads: answers are placed in any order, and missing ones are asked for.
func TestSelectiveReads(t *testing.T) {
	selectiveTest("answers in any order", t, func(t *testing.T, r *rawPeer) {
		r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, 1000), RemoteAddr: 1 << 40, RKey: 7})
		r.expect("RC_RDMA_READ_REQUEST 100")
		r.send(r.packet(wire.RCReadResponseFirst, 100, 256), r.packet(wire.RCReadResponseLast, 103, 232))
		r.expect("RC_RDMA_READ_REQUEST 101")
		if h := r.got[0].RETH; h.VA != 1<<40+256 || h.Length != 512 {
			t.Errorf("RETH %+v", h)
		}
		second, first := r.packet(wire.RCReadResponseLast, 102, 256), r.packet(wire.RCReadResponseFirst, 101, 256)
		r.send(second, first, second)
		r.dev.want(1, verbs.WCSuccess)
		want := make([]byte, 256)
		for k, psn := range []int{100, 101, 102} {
			if fill(want, psn); string(want) != string(r.dev.buf[256*k:256*k+256]) {
				t.Errorf("packet %d is not at its place", psn)
			}
		}
	})
	selectiveTest("no answer has the PSN of a WRITE", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMAWrite, 8)
		r.post(2, verbs.WRRDMARead, 600)
		r.expect("RC_RDMA_WRITE_ONLY 100 +8", "RC_RDMA_READ_REQUEST 101")
		r.send(r.packet(wire.RCReadResponseMiddle, 100, 256))
		r.expect()
		r.send(r.packet(wire.RCReadResponseFirst, 101, 256), r.packet(wire.RCReadResponseMiddle, 102, 256), r.packet(wire.RCReadResponseLast, 103, 88))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCSuccess)
	})
	selectiveTest("a lost READ is asked for as it was", t, func(t *testing.T, r *rawPeer) {
		r.dev.post(
			verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, 600), RemoteAddr: 1 << 40, RKey: 7},
			verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMAWrite, SGList: r.dev.sge(0, 8), RemoteAddr: 1 << 40, RKey: 7})
		r.expect("RC_RDMA_READ_REQUEST 100", "RC_RDMA_WRITE_ONLY 103 +8")
		r.send(r.arrived(100, 3))
		r.expect("RC_RDMA_READ_REQUEST 100")
		if h := r.got[0].RETH; h.VA != 1<<40 || h.Length != 600 {
			t.Errorf("RETH %+v", h)
		}
	})
	selectiveTest("an answer that was asked for again comes twice", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMARead, 1000)
		r.expect("RC_RDMA_READ_REQUEST 100")
		first := r.packet(wire.RCReadResponseFirst, 100, 256)
		r.send(r.packet(wire.RCReadResponseMiddle, 101, 256))
		r.expect("RC_RDMA_READ_REQUEST 100")
		r.send(first, first)
		r.expect()
		if q := r.dev.dev.qpInfos()[0]; q.ReadBytes != 1000-2*256 {
			t.Errorf("%d bytes are still to come, want %d", q.ReadBytes, 1000-2*256)
		}
		r.send(r.packet(wire.RCReadResponseMiddle, 102, 256), r.packet(wire.RCReadResponseLast, 103, 232))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.checkWindows()
	})
	selectiveTest("a repeated READ that the answer to a later one overtook is lost", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMARead, 600)
		r.expect("RC_RDMA_READ_REQUEST 100")
		r.send(r.packet(wire.RCReadResponseMiddle, 101, 256))
		r.expect("RC_RDMA_READ_REQUEST 100")
		r.post(2, verbs.WRRDMARead, 10)
		r.expect("RC_RDMA_READ_REQUEST 103")
		r.send(r.packet(wire.RCReadResponseOnly, 103, 10))
		r.expect("RC_RDMA_READ_REQUEST 100", "RC_RDMA_READ_REQUEST 102")
	})
}
