package roce

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestReadyToReceive: from RTR on requests are executed and answered; our own wait for RTS (IBTA 10.3.1).
func TestReadyToReceive(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		r.toRTR(pairConfig{}.withDefaults(), rawRate)
		r.dev.recv(7, r.dev.sge(0, 100)...)
		r.send(r.packet(wire.RCSendOnly, 100, 10), r.read(101, 0, 10))
		r.expect("ACK 100 msn 1", "RC_RDMA_READ_RESPONSE_ONLY 101 +10")
		r.dev.want(7, verbs.WCSuccess)
		if !r.dev.hasEvent(verbs.EventCommEst) {
			t.Errorf("events %v", r.dev.events)
		}
		r.send(r.ack(100))
		r.expect()
		if c := r.dev.dev.Counters(); c[WrongState] != 1 {
			t.Error(dump(r.dev.dev))
		}
	})
	selectiveTest("a list of what arrived", t, func(t *testing.T, r *rawPeer) {
		r.toRTR(pairConfig{ours: true}.withDefaults(), rawRate)
		r.send(r.arrived(100, 1))
		r.expect()
		if c := r.dev.dev.Counters(); c[WrongState] != 1 {
			t.Error(dump(r.dev.dev))
		}
	})
}

// TestNoReadsAgreed: without responder resources READs and atomics are invalid requests (IBTA 9.9.3).
func TestNoReadsAgreed(t *testing.T) {
	for name, request := range answeredRequests {
		rawTest(name, t, func(t *testing.T, r *rawPeer) {
			r.toRTR(pairConfig{}.withDefaults(), 0)
			r.send(request(r, 100))
			r.expect("NAK invalid request 100 msn 0")
			if r.dev.buf[0] != 0 {
				t.Error("executed")
			}
		})
	}
}

// TestLongestRequests: requests of 2 GiB are not invalid; here they exceed the region.
func TestLongestRequests(t *testing.T) {
	for name, request := range map[string]func(r *rawPeer) *wire.Packet{
		"READ":  func(r *rawPeer) *wire.Packet { return r.read(100, 0, wire.MaxMessage) },
		"WRITE": func(r *rawPeer) *wire.Packet { return r.write(wire.RCWriteFirst, 100, 256, wire.MaxMessage) },
	} {
		rawTest(name, t, func(t *testing.T, r *rawPeer) {
			r.send(request(r))
			r.expect("NAK remote access error 100 msn 0")
		})
	}
}

// TestHeldAhead: packets are held only as far ahead as there is room for their PSNs.
func TestHeldAhead(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		for _, c := range []struct{ ahead, held int }{{reorderSlots, 0}, {reorderSlots - 1, 1}} {
			r.send(r.write(wire.RCWriteOnly, 100+c.ahead, 4, 4))
			r.answers()
			r.dev.dev.mu.Lock()
			if n := r.dev.dev.held / ordinaryPayload; n != c.held {
				t.Errorf("%d packets are held, one comes %d ahead: want %d", n, c.ahead, c.held)
			}
			r.dev.dev.mu.Unlock()
		}
	})
}

// TestEndLeavesNothingHeld: what is held for a queue pair that ends takes no memory from the others.
func TestEndLeavesNothingHeld(t *testing.T) {
	for name, end := range map[string]func(q verbs.QP) error{
		"ERR":     func(q verbs.QP) error { return q.Modify(verbs.QPAttr{State: verbs.Err}) },
		"RESET":   func(q verbs.QP) error { return q.Modify(verbs.QPAttr{State: verbs.Reset}) },
		"destroy": verbs.QP.Destroy,
	} {
		rawTest(name, t, func(t *testing.T, r *rawPeer) {
			r.send(r.write(wire.RCWriteOnly, 101, 4, 4), r.write(wire.RCWriteOnly, 103, 4, 4))
			r.answers()
			held := func(q *qp) int { return q.d.held }
			if n := inside(r.dev, held); n != 2*ordinaryPayload {
				t.Errorf("%d bytes are held, want %d", n, 2*ordinaryPayload)
			}
			check(t, end(r.dev.qp))
			if n := inside(r.dev, held); n != 0 {
				t.Errorf("%d bytes are still held", n)
			}
		})
	}
}

// TestAnswersAcknowledge: the answers to READs and atomics say how far the responder has come (IBTA 9.7.5.1.2), whatever
// was answered before.
func TestAnswersAcknowledge(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteOnly, 102, 4, 4))
		r.expect("NAK PSN sequence error 100 msn 0")
		for i, request := range []*wire.Packet{r.read(100, 0, 10), r.atomic(101, 1)} {
			request.AckReq = false
			r.send(request)
			r.answers()
			want := wire.AETH{Syndrome: wire.ACK, MSN: wire.MSN(i + 1)}
			if i == 1 {
				want.MSN++ // with the WRITE behind it
			}
			if got := r.got[0].AETH; got != want {
				t.Errorf("%v has %+v, want %+v", r.got[0].Opcode, got, want)
			}
		}
	})
}

// TestNotReadyForImmediate: a WRITE with Immediate that finds no receive is to come again, and is executed then.
func TestNotReadyForImmediate(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		w := r.write(wire.RCWriteOnlyWithImm, 100, 4, 4)
		r.send(w)
		r.expect(fmt.Sprintf("%v 100 msn 0", wire.RNRNAK(12)))
		r.dev.recv(7)
		r.send(w)
		r.expect("ACK 100 msn 1")
		r.dev.want(7, verbs.WCSuccess)
	})
}

// TestKeyEndsBeforeAnswer: memory whose key ends after a READ was taken, and before it is answered, isn't sent.
func TestKeyEndsBeforeAnswer(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		r.dev.recv(7)
		r.dev.handle = func(*verbs.WC) { check(t, r.dev.mr.Dereg()) } // answers leave when all handlers have been called
		r.send(r.read(100, 0, 1000), r.packet(wire.RCSendOnly, 104, 0))
		r.expect("NAK remote access error 100 msn 2")
		if st := r.dev.qp.Query().State; st != verbs.Err || !r.dev.hasEvent(verbs.EventQPAccess) {
			t.Errorf("state %v, events %v", st, r.dev.events)
		}
	})
}

// TestAtomicReplay: an atomic is answered at once; when it is repeated, it is answered with what it found, and isn't
// executed again. A repetition whose PSN wasn't an atomic's gets no answer (IBTA 9.7.5.1.4).
func TestAtomicReplay(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		word := r.dev.buf[:8]
		answered := func(found uint64) {
			t.Helper()
			r.expect("RC_ATOMIC_ACKNOWLEDGE 100")
			if got := r.got[0].AtomicAckETH.OrigRemDt; got != found || binary.NativeEndian.Uint64(word) != 8 {
				t.Errorf("found %d, want %d; leaves %d, want 8", got, found, binary.NativeEndian.Uint64(word))
			}
		}
		binary.NativeEndian.PutUint64(word, 5)
		r.send(r.atomic(100, 3))
		answered(5)
		r.send(r.read(101, 100, 10), r.write(wire.RCWriteOnly, 102, 0, 0))
		r.answers()
		r.send(r.atomic(100, 3))
		answered(5)
		r.send(r.atomic(101, 3), r.atomic(102, 3))
		r.expect()
	})
}

// TestAnswersTakenBack: a peer that goes back to a READ asks again for everything after it: none of that is answered
// twice, and a NAK that hasn't left counts as not sent.
func TestAnswersTakenBack(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		r.send(r.read(100, 0, 10), r.write(wire.RCWriteOnly, 102, 0, 0), r.read(100, 0, 10), r.write(wire.RCWriteOnly, 103, 0, 0))
		r.expect("RC_RDMA_READ_RESPONSE_ONLY 100 +10", "NAK PSN sequence error 101 msn 1")
	})
	rawTest("atomic", t, func(t *testing.T, r *rawPeer) {
		r.send(r.atomic(100, 1), r.write(wire.RCWriteOnly, 102, 0, 0), r.atomic(100, 1), r.write(wire.RCWriteOnly, 103, 0, 0))
		r.expect("RC_ATOMIC_ACKNOWLEDGE 100", "NAK PSN sequence error 101 msn 1")
	})
}

// unanswered sends n requests, READs in the first place, with that many different PSNs to a device that answers none
// before it has taken all.
func unanswered(t *testing.T, n, different int, request func(r *rawPeer, psn int) *wire.Packet) *rawPeer {
	r := newRaw(t, pairConfig{ours: true})
	var ps []*wire.Packet
	for i := range n {
		ps = append(ps, request(r, 100+i%different))
	}
	time.Sleep(2 * standstill) // see catchUp
	r.send(ps...)
	r.answers()
	return r
}

// answeredRequests are the requests that have answers of their own.
var answeredRequests = map[string]func(r *rawPeer, psn int) *wire.Packet{
	"READ":   func(r *rawPeer, psn int) *wire.Packet { return r.read(psn, 0, 10) },
	"atomic": func(r *rawPeer, psn int) *wire.Packet { return r.atomic(psn, 1) },
}

// TestRepetitionsTakeNoPlace: READs and atomics that are repeated many times before they are answered don't take the
// place of the first answer to any request.
func TestRepetitionsTakeNoPlace(t *testing.T) {
	for name, request := range answeredRequests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := unanswered(t, 5*rawRate, rawRate, request)
				for i := range rawRate {
					if len(r.got) <= i || r.got[i].PSN != wire.MakePSN(uint32(100+i)) {
						t.Fatalf("answer %d of %d is another request's", i, len(r.got))
					}
				}
				r.send(request(r, 100+rawRate))
				if got := r.answers(); len(got) != 1 || r.got[0].PSN != 100+rawRate || r.got[0].Opcode == wire.RCAcknowledge {
					t.Errorf("the next one is answered with %q", got)
				}
			})
		})
	}
}

// TestTooManyReads: many more READs and atomics than were agreed on, unanswered, are refused (IBTA 9.9.3).
func TestTooManyReads(t *testing.T) {
	for name, request := range answeredRequests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := unanswered(t, 5*rawRate, 5*rawRate, request)
				if last := describe(&r.got[len(r.got)-1]); len(r.got) < rawRate || !strings.HasPrefix(last, "NAK invalid request") {
					t.Errorf("%d answers, the last is %s", len(r.got), last)
				}
				if st := r.dev.qp.Query().State; st != verbs.Err {
					t.Errorf("state %v", st)
				}
			})
		})
	}
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
	rawTest("nothing, which needs no key", t, func(t *testing.T, r *rawPeer) {
		for range 2 {
			p := r.read(100, 0, 0)
			p.RETH = wire.RETH{}
			r.send(p)
			r.expect("RC_RDMA_READ_RESPONSE_ONLY 100")
		}
	})
	rawTest("a byte more than a packet", t, func(t *testing.T, r *rawPeer) {
		for range 2 {
			r.send(r.read(100, 0, 257))
			r.expect("RC_RDMA_READ_RESPONSE_FIRST 100 +256", "RC_RDMA_READ_RESPONSE_LAST 101 +1")
		}
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
