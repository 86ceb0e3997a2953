package roce

import (
	"encoding/binary"
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
