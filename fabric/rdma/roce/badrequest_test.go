package roce

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

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
	rawTest("RNR NAK, and silence also after a READ before it is repeated", t, func(t *testing.T, r *rawPeer) {
		r.send(r.read(100, 0, 10), r.packet(wire.RCSendOnly, 101, 10))
		r.expect("RC_RDMA_READ_RESPONSE_ONLY 100 +10", "RNR NAK (640µs) 101 msn 1")
		r.send(r.read(100, 0, 10), r.packet(wire.RCSendOnly, 102, 10))
		r.expect("RC_RDMA_READ_RESPONSE_ONLY 100 +10")
	})
	for name, f := range map[string]func(r *rawPeer){
		"a gap": func(r *rawPeer) {
			r.send(r.write(wire.RCWriteOnly, 101, 4, 4))
			r.expect("NAK PSN sequence error 100 msn 0")
		},
		"an RNR NAK": func(r *rawPeer) {
			r.send(r.packet(wire.RCSendOnly, 100, 10))
			r.expect("RNR NAK (640µs) 100 msn 0")
		},
	} {
		rawTest("a NAK for a gap of the next connection, after "+name, t, func(t *testing.T, r *rawPeer) {
			f(r)
			r.toRTR(pairConfig{}.withDefaults(), rawRate)
			r.send(r.write(wire.RCWriteOnly, 102, 4, 4))
			r.expect("NAK PSN sequence error 100 msn 0")
		})
	}
	rawTest("a gap that is closed leaves another, before what wasn't held", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteOnly, 101, 4, 4), r.read(103, 0, 10), r.write(wire.RCWriteOnly, 100, 4, 4))
		r.expect("NAK PSN sequence error 102 msn 2")
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
		{"READ with a payload", func(r *rawPeer) []*wire.Packet {
			p := r.read(100, 0, 4)
			p.Payload = make([]byte, 4)
			return []*wire.Packet{p}
		}, invalid + " 100 msn 0"},
		{"atomic with a payload", func(r *rawPeer) []*wire.Packet {
			p := r.atomic(100, 1)
			p.Payload = make([]byte, 1) // and a pad
			return []*wire.Packet{p}
		}, invalid + " 100 msn 0"},
		{"ATOMIC WRITE", func(r *rawPeer) []*wire.Packet { return []*wire.Packet{r.packet(0x1d, 100, 8)} }, invalid + " 100 msn 0"},
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
