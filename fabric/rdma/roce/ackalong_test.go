package roce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// ackRaw makes a device whose raw peer has agreed on these options and on acknowledgements that go along. Its
// completion handler posts these requests for each message.
func ackRaw(t *testing.T, options uint32, answer func(r *rawPeer) []verbs.SendWR) *rawPeer {
	r := newRaw(t, pairConfig{ours: true, options: OptionAckAlong | options})
	for i := range uint64(8) {
		r.dev.recv(i, r.dev.sge(60000, 512)...)
	}
	r.dev.handle = func(wc *verbs.WC) {
		if wc.Opcode == verbs.WCRecv && answer != nil {
			r.dev.post(answer(r)...)
		}
	}
	return r
}

// answerWith makes an answer of one request.
func answerWith(op verbs.WROpcode, n int) func(r *rawPeer) []verbs.SendWR {
	return func(r *rawPeer) []verbs.SendWR {
		return []verbs.SendWR{{WRID: 9, Opcode: op, SGList: r.dev.sge(0, n), RemoteAddr: 1 << 40, RKey: 7, InvalidateRKey: 7}}
	}
}

// TestAckGoesAlong: the request with which a handler answers a message takes the message's acknowledgement along, if it
// can, and nothing else acknowledges it.
func TestAckGoesAlong(t *testing.T) {
	for _, c := range []struct {
		name    string
		options uint32
		answer  func(r *rawPeer) []verbs.SendWR
		want    []string
	}{
		{"SEND", 0, answerWith(verbs.WRSend, 16), []string{"SEND_ONLY_ACK 100 ack 100 +16"}},
		{"SEND with Invalidate", 0, answerWith(verbs.WRSendWithInv, 16), []string{"SEND_ONLY_WITH_INV_ACK 100 ack 100 +16"}},
		{"READ", 0, answerWith(verbs.WRRDMARead, 16), []string{"RDMA_READ_REQUEST_ACK 100 ack 100"}},
		{"WRITE with the SEND behind it", OptionWriteSend, func(r *rawPeer) []verbs.SendWR { return r.rawWriteSend(8, 16) },
			[]string{"RDMA_WRITE_ONLY_SEND_WITH_INV_ACK 100 ack 100 +24"}},
		{"WRITE, then SEND", 0, func(r *rawPeer) []verbs.SendWR { return r.rawWriteSend(8, 16) },
			[]string{"RC_RDMA_WRITE_ONLY 100 +8", "SEND_ONLY_WITH_INV_ACK 101 ack 100 +16"}},
		{"nothing", 0, nil, []string{"ACK 100 msn 1"}},
		{"SEND of two packets", 0, answerWith(verbs.WRSend, rawMTU+1), []string{"RC_SEND_FIRST 100 +132", "RC_SEND_LAST 101 +125", "ACK 100 msn 1"}},
		{"SEND with immediate", 0, answerWith(verbs.WRSendWithImm, 16), []string{"RC_SEND_ONLY_WITH_IMM 100 +16", "ACK 100 msn 1"}},
		{"WRITE", 0, answerWith(verbs.WRRDMAWrite, 16), []string{"RC_RDMA_WRITE_ONLY 100 +16", "ACK 100 msn 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := ackRaw(t, c.options, c.answer)
				r.send(r.packet(wire.RCSendOnly, 100, 8))
				r.expect(c.want...)
			})
		})
	}
}

// TestAckAlongNeedsConsent: such packets are only sent to a peer of our kind that has agreed; from any other peer they
// have no effect.
func TestAckAlongNeedsConsent(t *testing.T) {
	for name, c := range map[string]pairConfig{
		"not agreed on": {ours: true, options: OptionLongSend | OptionWriteSend},
		"of another vendor, with the same option": {options: OptionAckAlong | OptionWriteSend},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, c)
				r.dev.recv(1, r.dev.sge(60000, 512)...)
				r.dev.handle = func(wc *verbs.WC) {
					if wc.Opcode == verbs.WCRecv {
						r.dev.post(answerWith(verbs.WRSend, 16)(r)...)
					}
				}
				r.send(r.packet(wire.RCSendOnly, 100, 8))
				r.expect("RC_SEND_ONLY 100 +16", "ACK 100 msn 1")
				r.dev.want(1, verbs.WCSuccess)
				for _, op := range []wire.Opcode{wire.SendOnlyAck, wire.SendOnlyWithInvAck, wire.WriteSendAck, wire.WriteSendWithInvAck, wire.ReadRequestAck} {
					p := r.packet(op, 101, 0)
					p.AckPSN = 100
					r.send(p)
				}
				r.expect()
				if n := r.dev.dev.Counters()[Malformed]; n != 5 || len(r.dev.got) > 0 {
					t.Errorf("%d packets count as malformed, want 5; completions %+v", n, r.dev.got)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // only this option was agreed on
		r := ackRaw(t, 0, nil)
		r.send(r.packet(wire.WriteSendAck, 100, 8))
		r.expect()
		if n := r.dev.dev.Counters()[Malformed]; n != 1 {
			t.Errorf("%d packets count as malformed, want 1", n)
		}
	})
}

// TestAckAlongOvertakesNoAnswer: an acknowledgement that goes along covers neither a READ whose data is yet to leave
// nor what is behind that READ (IBTA 9.7.5.1.2).
func TestAckAlongOvertakesNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ackRaw(t, 0, answerWith(verbs.WRSend, 16))
		const packets = qpQuota + 10 // more than a batch takes
		r.send(r.packet(wire.RCSendOnly, 100, 8), r.read(101, 0, packets*rawMTU), r.packet(wire.RCSendOnly, 101+packets, 8))
		got := r.answers()
		var along []string
		for i, p := range r.got {
			if p.Opcode == wire.SendOnlyAck {
				along = append(along, got[i])
			}
		}
		const left = 100 + qpQuota - 1 // of the READ's data, after the ACK of 100
		want := []string{fmt.Sprintf("SEND_ONLY_ACK 100 ack %d +16", left), fmt.Sprintf("SEND_ONLY_ACK 101 ack %d +16", left)}
		if fmt.Sprint(along) != fmt.Sprint(want) {
			t.Errorf("got  %q\nwant %q", along, want)
		}
		if last := got[len(got)-1]; last != fmt.Sprintf("ACK %d msn 3", 101+packets) {
			t.Errorf("the last packet is %s", last)
		}
	})
}

// TestAckAlongIsTaken: an acknowledgement counts at once, even if its request has to wait for a lost one or was
// executed before; ghosts, for what is done already or was never sent, have no effect.
func TestAckAlongIsTaken(t *testing.T) {
	along := func(r *rawPeer, psn, acked int) *wire.Packet {
		p := r.packet(wire.SendOnlyAck, psn, 8)
		p.AckPSN = wire.AckPSN(acked)
		return p
	}
	for name, f := range map[string]func(t *testing.T, r *rawPeer){
		"in order": func(t *testing.T, r *rawPeer) {
			r.send(along(r, 100, 101))
			r.expect("ACK 100 msn 1")
			r.dev.want(20, verbs.WCSuccess)
			r.dev.want(21, verbs.WCSuccess)
			r.dev.want(0, verbs.WCSuccess)
		},
		"ahead of a lost one": func(t *testing.T, r *rawPeer) {
			r.send(along(r, 101, 100))
			r.expect("SELECTIVE_ACK 100 +1")
			r.dev.want(20, verbs.WCSuccess)
		},
		"in a duplicate": func(t *testing.T, r *rawPeer) {
			r.send(along(r, 100, 99))
			r.expect("ACK 100 msn 1")
			r.dev.want(0, verbs.WCSuccess)
			r.send(along(r, 100, 100))
			r.expect("ACK 100 msn 1")
			r.dev.want(20, verbs.WCSuccess)
		},
		"ghosts": func(t *testing.T, r *rawPeer) {
			for i, psn := range []int{102, 1000, 0, 1<<24 - 1, 99} {
				r.send(along(r, 100+i, psn))
				r.expect(fmt.Sprintf("ACK %d msn %d", 100+i, i+1))
				r.dev.want(uint64(i), verbs.WCSuccess)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := ackRaw(t, 0, nil)
				for i := range uint64(2) {
					r.dev.post(verbs.SendWR{WRID: 20 + i, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: r.dev.sge(0, 8)})
				}
				r.expect("SEND_ONLY_ACK 100 ack 99 +8", "SEND_ONLY_ACK 101 ack 99 +8")
				f(t, r)
				if len(r.dev.got) > 0 {
					t.Errorf("completions %+v", r.dev.got)
				}
			})
		})
	}
}

// TestAckAwaitsSharedHandler: when one handler posts for many queue pairs, what it has posted for some leaves while it
// still works for the others, whose acknowledgements wait for their requests.
func TestAckAwaitsSharedHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, pairConfig{endpoint: simnet.Config{Coalesce: true}})
		const peers = 2*callsAtOnce - 1
		s := &side{t: t, dev: r.dev.dev, pd: r.dev.pd, mr: r.dev.mr}
		qps := map[uint32]verbs.QP{}
		early, posted := uint64(0), 0
		var err error
		s.cq, err = s.dev.CreateCQ(2*peers, func(cq verbs.CQ) {
			wcs := make([]verbs.WC, 2*peers)
			for _, wc := range wcs[:cq.Poll(wcs)] {
				if wc.Opcode == verbs.WCRecv {
					_, err := qps[wc.QPNum].PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGList: s.sge(0, 16)}})
					check(t, err)
					posted++
				}
			}
			if posted == peers && early == 0 {
				early = s.dev.Counters()[SentPackets]
			}
			cq.ReqNotify()
		})
		check(t, err)
		s.cq.ReqNotify()
		train := udp.Train{Dst: r.dst}
		for i := range uint16(peers) {
			r.addPeer(s, i, &train)
			qps[s.qp.QPNum()] = s.qp
		}
		_, err = r.conn.Send([]udp.Train{train})
		check(t, err)
		r.expectEach(peers, "SEND_ONLY_ACK 100 ack 100 +16")
		if early != callsAtOnce {
			t.Errorf("%d packets had left before the handler's end, want %d", early, callsAtOnce)
		}
	})
}

// addPeer gives s a queue pair connected to the raw peer, and adds a message for it to the train.
func (r *rawPeer) addPeer(s *side, i uint16, train *udp.Train) {
	t := s.t
	s.qp = s.newQP(pairConfig{}.withDefaults())
	check(t, s.qp.Modify(verbs.QPAttr{State: verbs.Init}))
	check(t, s.qp.Modify(verbs.QPAttr{
		State: verbs.RTR, Remote: addrA, PeerVendorID: vendorID, VendorOptions: OptionAckAlong, DestQPN: rawQPN,
		PathMTU: verbs.MTU256, RQPSN: rawPSN,
	}))
	check(t, s.qp.Modify(verbs.QPAttr{State: verbs.RTS, SQPSN: rawPSN, Timeout: 17}))
	s.recv(1, s.sge(60000, 512)...)
	p := r.packet(wire.RCSendOnly, 100, 8)
	p.DestQP = wire.QPN(s.qp.QPNum())
	b := p.Append(nil, r.flow, i)
	train.Parts, train.SegmentSize, train.Bytes = append(train.Parts, b), len(b), train.Bytes+len(b)
}

// expectEach expects that packet from each of n queue pairs, and nothing else.
func (r *rawPeer) expectEach(n int, want string) {
	r.t.Helper()
	got := r.answers()
	for _, text := range got {
		if text != want {
			r.t.Fatalf("packets are %q", got)
		}
	}
	if len(got) != n {
		r.t.Errorf("%d packets, want %d", len(got), n)
	}
}

// TestAckAwaitsHandler: when more handlers are due than are called at once, acknowledgements also wait for the requests
// of the handlers that are called later, and leave alone if those post none.
func TestAckAwaitsHandler(t *testing.T) {
	for _, c := range []struct {
		posts bool
		want  string
	}{
		{true, "SEND_ONLY_ACK 100 ack 100 +16"},
		{false, "ACK 100 msn 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRaw(t, pairConfig{endpoint: simnet.Config{Coalesce: true}})
			const peers = 2*callsAtOnce - 1 // as many as one train holds
			train := udp.Train{Dst: r.dst}
			for i := range uint16(peers) {
				s := &side{t: t, dev: r.dev.dev, pd: r.dev.pd, mr: r.dev.mr, wake: make(chan struct{}, 1)}
				var err error
				s.cq, err = s.dev.CreateCQ(64, s.onCQ)
				check(t, err)
				s.cq.ReqNotify()
				s.handle = func(wc *verbs.WC) {
					if c.posts && wc.Opcode == verbs.WCRecv {
						s.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: s.sge(0, 16)})
					}
				}
				r.addPeer(s, i, &train)
			}
			_, err := r.conn.Send([]udp.Train{train})
			check(t, err)
			r.expectEach(peers, c.want)
		})
	}
}

// echo makes b answer each message in its handler.
func (p *pair) echo() {
	p.b.handle = func(wc *verbs.WC) {
		if wc.Opcode == verbs.WCRecv && wc.Status == verbs.WCSuccess {
			p.b.recv(wc.WRID, p.b.sge(int(wc.WRID)*4096, 4096)...)
			p.b.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: p.b.sge(int(wc.WRID)*4096, int(wc.ByteLen))})
		}
	}
	for i := range uint64(2) {
		p.b.recv(i, p.b.sge(int(i)*4096, 4096)...)
	}
}

// exchange makes a send n messages of m bytes, one after another, each of which is echoed.
func exchange(p *pair, n, m int) {
	p.echo()
	for i := range n {
		fill(p.a.buf[:m], i)
		p.a.recv(1, p.a.sge(half, 4096)...)
		p.a.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: p.a.sge(0, m)})
		if wc := p.a.want(1, verbs.WCSuccess); int(wc.ByteLen) != m {
			p.t.Fatalf("answer of %d bytes, want %d", wc.ByteLen, m)
		}
		checkMoved(p.t, p.a.buf, p.a.buf[half:], m)
	}
}

// TestMishapToAckAlong has a mishap befall each packet of messages that answer one another and take acknowledgements
// along.
func TestMishapToAckAlong(t *testing.T) {
	for _, m := range mishaps {
		for _, n := range []int{16, 300} {
			t.Run(fmt.Sprintf("%s/%d", m.name, n), func(t *testing.T) {
				op := operation{run: func(p *pair, n int) {
					exchange(p, 6, n)
					time.Sleep(time.Second)
					synctest.Wait()
					for _, s := range []*side{p.a, p.b} {
						s.mu.Lock()
						s.got = nil
						s.mu.Unlock()
					}
				}}
				for victim := 0; op.befalls(t, pairConfig{options: OptionAckAlong, unsignaled: true}, m.action, n, victim); victim++ {
				}
			})
		}
	}
}

// TestExchangeSendsNothingElse: messages that answer one another are one packet each, except for the acknowledgement of
// the last one.
func TestExchangeSendsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{options: OptionAckAlong, unsignaled: true})
		p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
		p.echo()
		const messages = 10
		send := func(id uint64) {
			p.a.recv(id, p.a.sge(half, 4096)...)
			p.a.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: p.a.sge(0, 16)})
		}
		p.a.handle = func(wc *verbs.WC) {
			if wc.WRID < messages {
				send(wc.WRID + 1)
			}
		}
		send(1)
		time.Sleep(time.Second)
		if a, b := p.a.dev.Counters()[SentPackets], p.b.dev.Counters()[SentPackets]; a != messages+1 || b != messages {
			t.Errorf("%d and %d packets were sent, want %d and %d", a, b, messages+1, messages)
		}
	})
}
