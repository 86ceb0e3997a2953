package roce

import (
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
		if c := r.dev.dev.Counters(); c[Retransmitted] != 3 {
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
	selectiveTest("what was listed is missing after all", t, func(t *testing.T, r *rawPeer) {
		r.writes(3)
		r.send(r.arrived(100, 1))
		r.expect("RC_RDMA_WRITE_ONLY 100 +256")
		r.send(r.arrived(101, 1))
		r.expect("RC_RDMA_WRITE_ONLY 101 +256")
		r.send(r.ack(102))
		r.dev.want(1, verbs.WCSuccess)
	})
	selectiveTest("a plain NAK has the rest sent again", t, func(t *testing.T, r *rawPeer) {
		r.writes(3)
		p := r.ack(101)
		p.AETH.Syndrome = wire.NAKPSNSequenceError
		r.send(p)
		r.expect("RC_RDMA_WRITE_ONLY 101 +256", "RC_RDMA_WRITE_ONLY 102 +256")
	})
	selectiveTest("the first missing packet leaves whatever others have in the window", t, func(t *testing.T, r *rawPeer) {
		r.writes(4)
		inside(r.dev, func(q *qp) any { q.path.window.sent(2 * initialWindow); return nil })
		r.send(r.arrived(100, 2, 3))
		r.expect("RC_RDMA_WRITE_ONLY 100 +256")
		r.send(r.ack(100))
		r.expect("RC_RDMA_WRITE_ONLY 101 +256")
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
}
