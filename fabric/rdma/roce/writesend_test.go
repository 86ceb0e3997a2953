package roce

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// rawWriteSend returns a WRITE of n bytes and a SEND of m behind it, which invalidates the key, as posted by a device
// with a raw peer.
func (r *rawPeer) rawWriteSend(n, m int) []verbs.SendWR {
	return []verbs.SendWR{
		{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: r.dev.sge(0, n), RemoteAddr: 1 << 40, RKey: 7},
		{WRID: 2, Opcode: verbs.WRSendWithInv, SGList: r.dev.sge(1000, m), InvalidateRKey: 7},
	}
}

// TestWriteSendIsSent: a WRITE of one packet takes along a short SEND behind it, and no other WRITE or SEND does so.
func TestWriteSendIsSent(t *testing.T) {
	const together = "RDMA_WRITE_ONLY_SEND_WITH_INV 100"
	for _, c := range []struct {
		name  string
		n, m  int
		alter func(r *rawPeer, write, send *verbs.SendWR)
		want  []string
	}{
		{"both short", 8, 16, nil, []string{together + " +24"}},
		{"both as long as may be", rawMTU, wire.LongSend, nil, []string{together + " +320"}},
		{"WRITE of nothing", 0, 16, nil, []string{together + " +16"}},
		{"without invalidation", 8, 16, func(_ *rawPeer, _, send *verbs.SendWR) { send.Opcode = verbs.WRSend },
			[]string{"RDMA_WRITE_ONLY_SEND 100 +24"}},
		{"inline", 8, 16, func(_ *rawPeer, write, send *verbs.SendWR) {
			write.Flags, send.Flags = verbs.SendInline, verbs.SendInline
		},
			[]string{together + " +24"}},
		{"WRITE of two packets", rawMTU + 1, 16, nil, []string{"RC_RDMA_WRITE_ONLY 100 +256", "RC_RDMA_WRITE_ONLY 101 +1", "RC_SEND_ONLY_WITH_INV 102 +16"}},
		{"SEND too long", 8, wire.LongSend + 1, nil, []string{"RC_RDMA_WRITE_ONLY 100 +8", "RC_SEND_ONLY_WITH_INV 101 +65"}},
		{"SEND of nothing", 8, 0, nil, []string{"RC_RDMA_WRITE_ONLY 100 +8", "RC_SEND_ONLY_WITH_INV 101"}},
		{"SEND of two pieces", 8, 16, func(r *rawPeer, _, send *verbs.SendWR) { send.SGList = append(send.SGList, r.dev.sge(2000, 4)...) },
			[]string{"RC_RDMA_WRITE_ONLY 100 +8", "RC_SEND_ONLY_WITH_INV 101 +20"}},
		{"WRITE with immediate", 8, 16, func(_ *rawPeer, write, _ *verbs.SendWR) { write.Opcode = verbs.WRRDMAWriteWithImm },
			[]string{"RC_RDMA_WRITE_ONLY_WITH_IMM 100 +8", "RC_SEND_ONLY_WITH_INV 101 +16"}},
		{"SEND with a fence", 8, 16, func(_ *rawPeer, _, send *verbs.SendWR) { send.Flags = verbs.SendFence },
			[]string{"RC_RDMA_WRITE_ONLY 100 +8", "RC_SEND_ONLY_WITH_INV 101 +16"}},
		{"SEND from memory whose pages may be missing", 8, 16, func(r *rawPeer, _, send *verbs.SendWR) {
			mr, err := r.dev.pd.RegMR(make([]byte, 16), verbs.AccessLocalWrite|verbs.AccessOnDemand)
			check(r.t, err)
			send.SGList = []verbs.SGE{{Addr: mr.Addr(), Length: 16, LKey: mr.LKey()}}
		},
			[]string{"RC_RDMA_WRITE_ONLY 100 +8", "RC_SEND_ONLY_WITH_INV 101 +16"}},
		{"SEND with immediate", 8, 16, func(_ *rawPeer, _, send *verbs.SendWR) { send.Opcode = verbs.WRSendWithImm },
			[]string{"RC_RDMA_WRITE_ONLY 100 +8", "RC_SEND_ONLY_WITH_IMM 101 +16"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, pairConfig{ours: true, options: OptionWriteSend})
				wrs := r.rawWriteSend(c.n, c.m)
				if c.alter != nil {
					c.alter(r, &wrs[0], &wrs[1])
				}
				r.dev.post(wrs...)
				r.expect(c.want...)
			})
		})
	}
}

// TestWriteAloneTakesNothing: a WRITE behind which nothing is posted takes no earlier SEND along, which is still in the
// ring of the send queue.
func TestWriteAloneTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, pairConfig{ours: true, options: OptionWriteSend})
		for psn := 100; psn < 200; psn += 2 {
			wrs := r.rawWriteSend(8, 16)
			r.dev.post(wrs...)
			r.expect(fmt.Sprintf("RDMA_WRITE_ONLY_SEND_WITH_INV %d +24", psn))
			r.dev.post(wrs[0])
			r.expect(fmt.Sprintf("RC_RDMA_WRITE_ONLY %d +8", psn+1))
			r.send(r.ack(psn + 1))
		}
	})
}

// TestWriteSendNeedsConsent: such packets are sent only to a peer of our kind that has agreed, and the consumer is told
// of them only then.
func TestWriteSendNeedsConsent(t *testing.T) {
	for _, c := range []struct {
		name   string
		config pairConfig
		mtu    int
	}{
		{"agreed on", pairConfig{ours: true, options: OptionWriteSend}, rawMTU},
		{"not agreed on", pairConfig{ours: true, options: OptionLongSend}, 0},
		{"of another vendor, with the same option", pairConfig{options: OptionWriteSend}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, c.config)
				if got := r.dev.qp.Query().WriteSendMTU; got != c.mtu {
					t.Errorf("WriteSendMTU is %d, want %d", got, c.mtu)
				}
				r.dev.post(r.rawWriteSend(8, 16)...)
				if c.mtu != 0 {
					r.expect("RDMA_WRITE_ONLY_SEND_WITH_INV 100 +24")
				} else {
					r.expect("RC_RDMA_WRITE_ONLY 100 +8", "RC_SEND_ONLY_WITH_INV 101 +16")
				}
			})
		})
	}
}

// writeSend makes a packet of a WRITE of n bytes and a SEND of m.
func (r *rawPeer) writeSend(psn, n, m int) *wire.Packet {
	return r.write(wire.WriteSend, psn, n+m, n)
}

// TestWriteSendIsTaken: each part has to obey its own rules (IBTA 9.7.4.1, 9.9.3).
func TestWriteSendIsTaken(t *testing.T) {
	const receive = 64 // bytes of the posted buffer
	for _, c := range []struct {
		name   string
		packet func(r *rawPeer) *wire.Packet
		want   string
	}{
		{"both short", func(r *rawPeer) *wire.Packet { return r.writeSend(100, 8, 16) }, "ACK 100 msn 1"},
		{"both as long as may be", func(r *rawPeer) *wire.Packet { return r.writeSend(100, rawMTU, wire.LongSend) }, "ACK 100 msn 1"},
		{"WRITE of nothing, with no key", func(r *rawPeer) *wire.Packet {
			p := r.writeSend(100, 0, 16)
			p.RETH = wire.RETH{}
			return p
		}, "ACK 100 msn 1"},
		{"WRITE longer than the path MTU", func(r *rawPeer) *wire.Packet { return r.writeSend(100, rawMTU+4, 16) }, "NAK invalid request 100 msn 0"},
		{"SEND longer than was agreed on", func(r *rawPeer) *wire.Packet { return r.writeSend(100, 8, wire.LongSend+4) }, "NAK invalid request 100 msn 0"},
		{"less data than the RETH says", func(r *rawPeer) *wire.Packet { return r.write(wire.WriteSend, 100, 24, 28) }, "NAK invalid request 100 msn 0"},
		{"of more than 2 GiB", func(r *rawPeer) *wire.Packet { return r.write(wire.WriteSend, 100, 24, 1<<31+8) }, "NAK invalid request 100 msn 0"},
		{"dead key", func(r *rawPeer) *wire.Packet {
			p := r.writeSend(100, 8, 16)
			p.RETH.RKey++
			return p
		}, "NAK remote access error 100 msn 0"},
		{"range past the region", func(r *rawPeer) *wire.Packet {
			p := r.writeSend(100, 8, 16)
			p.RETH.VA += uint64(len(r.dev.buf)) - 7
			return p
		}, "NAK remote access error 100 msn 0"},
		{"invalidation of a key that can't be", func(r *rawPeer) *wire.Packet {
			p := r.writeSend(100, 8, 16)
			p.Opcode, p.IETH.RKey = wire.WriteSendWithInv, p.RETH.RKey
			return p
		}, "NAK remote access error 100 msn 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, pairConfig{ours: true, options: OptionWriteSend})
				r.dev.recv(1, r.dev.sge(1000, receive)...)
				p := c.packet(r)
				r.send(p)
				r.expect(c.want)
				if c.want != "ACK 100 msn 1" {
					r.dev.want(1, verbs.WCWRFlushErr)
					return
				}
				if c := r.dev.dev.Counters(); c[RxWriteRequests] != 1 || c[RxSendRequests] != 1 {
					t.Errorf("counted as %d WRITEs and %d SENDs, want one each", c[RxWriteRequests], c[RxSendRequests])
				}
				n := int(p.RETH.Length)
				if wc := r.dev.want(1, verbs.WCSuccess); int(wc.ByteLen) != len(p.Payload)-n {
					t.Errorf("message of %d bytes, want %d", wc.ByteLen, len(p.Payload)-n)
				}
				if !bytes.Equal(r.dev.buf[:n], p.Payload[:n]) || !bytes.Equal(r.dev.buf[1000:][:len(p.Payload)-n], p.Payload[n:]) {
					t.Error("the data isn't where it belongs")
				}
			})
		})
	}
}

// TestWriteSendInPlace: such a packet is refused inside another message; without a receive it isn't executed but asked
// for again; with a receive that is too short it ends the connection; and if it comes twice it counts once.
func TestWriteSendInPlace(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, r *rawPeer){
		"inside a SEND": func(t *testing.T, r *rawPeer) {
			r.dev.recv(1, r.dev.sge(1000, 4096)...)
			r.send(r.packet(wire.RCSendFirst, 100, rawMTU), r.writeSend(101, 8, 16))
			r.expect("NAK invalid request 101 msn 0")
		},
		"no receive": func(t *testing.T, r *rawPeer) {
			r.send(r.writeSend(100, 8, 16))
			r.expect("RNR NAK (640µs) 100 msn 0")
			r.dev.recv(1, r.dev.sge(1000, 64)...)
			r.send(r.writeSend(100, 8, 16))
			r.expect("ACK 100 msn 1")
			r.dev.want(1, verbs.WCSuccess)
		},
		"receive too short": func(t *testing.T, r *rawPeer) {
			r.dev.recv(1, r.dev.sge(1000, 15)...)
			r.send(r.writeSend(100, 8, 16))
			r.expect("NAK invalid request 100 msn 0")
			r.dev.want(1, verbs.WCLocLenErr)
		},
		"twice": func(t *testing.T, r *rawPeer) {
			r.dev.recv(1, r.dev.sge(1000, 64)...)
			r.dev.recv(2, r.dev.sge(2000, 64)...)
			r.send(r.writeSend(100, 8, 16), r.writeSend(100, 8, 16))
			r.expect("ACK 100 msn 1")
			r.dev.want(1, verbs.WCSuccess)
			if len(r.dev.got) > 0 {
				t.Errorf("completions %+v", r.dev.got)
			}
		},
		"ahead of a lost one": func(t *testing.T, r *rawPeer) {
			r.dev.recv(1, r.dev.sge(1000, 64)...)
			r.dev.recv(2, r.dev.sge(2000, 64)...)
			r.send(r.writeSend(101, 8, 20))
			r.expect("SELECTIVE_ACK 100 +1")
			r.send(r.writeSend(100, 8, 16))
			r.expect("ACK 101 msn 2")
			if wc := r.dev.want(1, verbs.WCSuccess); wc.ByteLen != 16 {
				t.Errorf("first message of %d bytes, want 16", wc.ByteLen)
			}
			if wc := r.dev.want(2, verbs.WCSuccess); wc.ByteLen != 20 {
				t.Errorf("second message of %d bytes, want 20", wc.ByteLen)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newRaw(t, pairConfig{ours: true, options: OptionWriteSend})) })
		})
	}
}

// TestWriteSendNeedsAccess: the WRITE needs a queue pair that allows the peer to write (IBTA 9.7.4.1).
func TestWriteSendNeedsAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, pairConfig{ours: true, options: OptionWriteSend, access: verbs.AccessRemoteRead})
		r.dev.recv(1, r.dev.sge(1000, 64)...)
		r.send(r.writeSend(100, 8, 16))
		r.expect("NAK invalid request 100 msn 0")
		r.dev.want(1, verbs.WCWRFlushErr)
	})
}

// TestWriteSendOfStrangers: such packets from a peer that hasn't agreed on them have no effect.
func TestWriteSendOfStrangers(t *testing.T) {
	for _, c := range []pairConfig{{ours: true, options: OptionLongSend}, {options: OptionWriteSend}} {
		t.Run(fmt.Sprintf("ours=%v", c.ours), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, c)
				r.dev.recv(1, r.dev.sge(1000, 64)...)
				r.send(r.writeSend(100, 8, 16))
				r.expect()
				if n := r.dev.dev.Counters()[Malformed]; n != 1 || len(r.dev.got) > 0 {
					t.Errorf("%d packets count as malformed, want 1; completions %+v", n, r.dev.got)
				}
			})
		})
	}
}

// TestWriteSendFails: a SEND whose memory isn't the device's fails separately, after its WRITE.
func TestWriteSendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{options: OptionWriteSend})
		p.a.post(
			verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 8), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()},
			verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: []verbs.SGE{{Addr: p.a.mr.Addr(), Length: 16, LKey: p.a.mr.LKey() + 1}}},
		)
		p.a.want(1, verbs.WCSuccess)
		p.a.want(2, verbs.WCLocProtErr)
	})
}
