package roce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// fatalNAKs are the NAKs that end a connection, with the status that each gives.
var fatalNAKs = []struct {
	syndrome wire.Syndrome
	status   verbs.WCStatus
}{
	{wire.NAKInvalidRequest, verbs.WCRemInvReqErr},
	{wire.NAKRemoteAccessError, verbs.WCRemAccessErr},
	{wire.NAKRemoteOperationalErr, verbs.WCRemOpErr},
	{wire.NAKInvalidRDRequestError, verbs.WCBadRespErr},
}

// post posts a request with n bytes of data.
func (r *rawPeer) post(id uint64, op verbs.WROpcode, n int) {
	r.dev.post(verbs.SendWR{WRID: id, Opcode: op, SGList: r.dev.sge(0, n), RemoteAddr: 1 << 40, RKey: 7})
}

// TestAcknowledgementsOfAll checks what the requester makes of ACKs and NAKs from peers of either kind (IBTA 9.7.5,
// 9.7.7).
func TestAcknowledgementsOfAll(t *testing.T) {
	t.Run("another kind", func(t *testing.T) { testAcknowledgements(t, rawTest) })
	t.Run("our kind", func(t *testing.T) { testAcknowledgements(t, selectiveTest) })
}

func testAcknowledgements(t *testing.T, with func(name string, t *testing.T, f func(t *testing.T, r *rawPeer))) {
	with("an ACK is for everything before it too", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMAWrite, 300)
		r.post(2, verbs.WRSend, 10)
		r.post(3, verbs.WRSend, 10)
		r.answers()
		r.send(r.ack(102))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCSuccess)
		r.send(r.ack(103))
		r.dev.want(3, verbs.WCSuccess)
	})
	with("an answer is an ACK of what was before it", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRSend, 10)
		r.post(2, verbs.WRRDMARead, 10)
		r.answers()
		r.send(r.packet(wire.RCReadResponseOnly, 101, 10))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCSuccess)
	})
	for _, c := range fatalNAKs {
		with(c.syndrome.String()+" completes what is before it, ends its request, flushes the others", t, func(t *testing.T, r *rawPeer) {
			for id := range uint64(3) {
				r.post(id, verbs.WRSend, 10)
			}
			r.answers()
			r.send(r.nak(c.syndrome, 101))
			r.dev.want(0, verbs.WCSuccess)
			r.dev.want(1, c.status)
			r.dev.want(2, verbs.WCWRFlushErr)
		})
	}
}

// TestAcknowledgements checks what the requester makes of ACKs and NAKs from a peer of another kind.
func TestAcknowledgements(t *testing.T) {
	rawTest("an ACK that overtakes a READ's data is a NAK of that", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMARead, 10)
		r.post(2, verbs.WRSend, 10)
		r.answers()
		r.send(r.ack(101))
		r.expect("RC_RDMA_READ_REQUEST 100", "RC_SEND_ONLY 101 +10")
		r.send(r.packet(wire.RCReadResponseOnly, 100, 10), r.ack(101))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCSuccess)
	})
	rawTest("ghosts: of what is done, and of what was never sent", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRSend, 10)
		r.answers()
		r.send(r.ack(100))
		r.dev.want(1, verbs.WCSuccess)
		r.post(2, verbs.WRSend, 10)
		r.answers()
		fatal := r.nak(wire.NAKRemoteAccessError, 100)
		r.send(r.ack(100), fatal, r.ack(102), r.packet(wire.RCReadResponseOnly, 100, 10))
		r.expect()
		r.send(r.ack(101))
		r.dev.want(2, verbs.WCSuccess)
	})
	rawTest("a NAK sends again from its PSN on, once for its echoes", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMAWrite, 600)
		r.answers()
		nak := r.nak(wire.NAKPSNSequenceError, 101)
		r.send(nak)
		r.expect("RC_RDMA_WRITE_ONLY 101 +256", "RC_RDMA_WRITE_ONLY 102 +88")
		r.send(nak)
		r.expect()
		r.send(r.ack(102))
		r.dev.want(1, verbs.WCSuccess)
	})
	rawTest("a lost NAK is made up for by silence", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMAWrite, 300)
		r.answers()
		time.Sleep(minEarlyTimeout)
		r.expect("RC_RDMA_WRITE_ONLY 100 +256")
		r.send(r.ack(100))
		r.expect("RC_RDMA_WRITE_ONLY 101 +44")
		r.send(r.ack(101))
		r.dev.want(1, verbs.WCSuccess)
	})
}

// TestAsymmetricCut: if only the answers are lost, the requester gives up by its timeout and the responder has executed
// everything once; if the requests are lost, it has executed nothing.
func TestAsymmetricCut(t *testing.T) {
	for _, answers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{retryCnt: 2})
			from, to := addrA, addrB
			if answers {
				from, to = addrB, addrA
			}
			for i := range 3 {
				p.b.recv(uint64(i), p.b.sge(0, 100)...)
			}
			p.net.Cut(from, to)
			p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: p.a.sge(0, 10)})
			p.a.want(1, verbs.WCRetryExcErr)
			synctest.Wait()
			p.b.mu.Lock()
			defer p.b.mu.Unlock()
			if want := map[bool]int{false: 0, true: 1}[answers]; len(p.b.got) != want {
				t.Errorf("answers cut: %v; %d messages were received, want %d", answers, len(p.b.got), want)
			}
		})
	}
}

// TestAcknowledgementsOfOurs checks what the requester makes of ACKs and NAKs from a peer of our kind.
func TestAcknowledgementsOfOurs(t *testing.T) {
	selectiveTest("an ACK that overtakes a READ's data has that alone asked for", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMARead, 10)
		r.post(2, verbs.WRSend, 10)
		r.answers()
		r.send(r.ack(101))
		r.expect("RC_RDMA_READ_REQUEST 100")
		r.send(r.packet(wire.RCReadResponseOnly, 100, 10))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCSuccess)
	})
	selectiveTest("ghosts: of what is done, and of what was never sent", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRSend, 10)
		r.answers()
		r.send(r.ack(100))
		r.dev.want(1, verbs.WCSuccess)
		r.post(2, verbs.WRSend, 10)
		r.answers()
		fatal := r.nak(wire.NAKRemoteAccessError, 100)
		r.send(r.ack(100), fatal, r.ack(102), r.packet(wire.RCReadResponseOnly, 100, 10), r.arrived(100, 1), r.arrived(102, 0, 1))
		r.expect()
		r.send(r.arrived(101, 1, 2, 300)) // nothing after 101 was sent
		r.expect()
		r.send(r.ack(101))
		r.dev.want(2, verbs.WCSuccess)
	})
	selectiveTest("an old list, of before what the peer has executed since", t, func(t *testing.T, r *rawPeer) {
		r.post(1, verbs.WRRDMARead, 10)
		for i := range uint64(3) {
			r.post(2+i, verbs.WRRDMAWrite, 10)
		}
		r.answers()
		r.send(r.ack(103))
		r.expect("RC_RDMA_READ_REQUEST 100") // whose answer is lost
		r.send(r.arrived(101, 1))
		r.expect()
		r.send(r.packet(wire.RCReadResponseOnly, 100, 10))
		for i := range uint64(4) {
			r.dev.want(1+i, verbs.WCSuccess)
		}
	})
	selectiveTest("a NAK of what the peer had held", t, func(t *testing.T, r *rawPeer) {
		for i := range uint64(3) {
			r.post(1+i, verbs.WRSend, 10)
		}
		r.answers()
		r.send(r.arrived(100, 1, 2))
		r.expect("RC_SEND_ONLY 100 +10")
		r.send(r.nak(wire.NAKPSNSequenceError, 101)) // no receive was posted for it, and the RNR NAK was lost
		r.expect("RC_SEND_ONLY 101 +10", "RC_SEND_ONLY 102 +10")
		r.send(r.ack(102))
		for i := range uint64(3) {
			r.dev.want(1+i, verbs.WCSuccess)
		}
	})
}

// TestCountsBeginAnew: the limits on retries are per message (IBTA 9.7.5.2.8, 9.9.2.4.1): a requester that needs as
// many as are allowed for each of many messages goes on.
func TestCountsBeginAnew(t *testing.T) {
	const limit, messages = 2, 4
	for _, foreign := range []bool{false, true} {
		run := func(name string, c pairConfig, f func(p *pair, message verbs.SendWR)) {
			t.Run(fmt.Sprintf("%s/foreign=%v", name, foreign), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c.foreign = foreign
					p := newPair(t, c)
					for message := range uint64(messages) {
						f(p, verbs.SendWR{WRID: message, Opcode: verbs.WRSend, SGList: p.a.sge(0, 3000)})
						p.b.want(message, verbs.WCSuccess)
						p.a.want(message, verbs.WCSuccess)
					}
				})
			})
		}
		run("receiver not ready", pairConfig{rnrRetry: limit, rnrTimer: 14}, func(p *pair, message verbs.SendWR) {
			refused := p.b.dev.Counters()[OutOfBuffer]
			p.a.post(message)
			for p.b.dev.Counters()[OutOfBuffer] < refused+limit {
				time.Sleep(time.Millisecond)
			}
			p.b.recv(message.WRID, p.b.sge(0, 3000)...)
		})
		run("silence", pairConfig{retryCnt: limit, timeout: 10}, func(p *pair, message verbs.SendWR) {
			p.net.Cut(addrA, addrB)
			p.a.post(message)
			timeouts := p.a.dev.Counters()[LocalAckTimeoutErr]
			p.b.recv(message.WRID, p.b.sge(0, 3000)...)
			for p.a.dev.Counters()[LocalAckTimeoutErr] < timeouts+limit-1 { // the last retry comes after the last timeout
				time.Sleep(time.Millisecond)
			}
			p.net.Restore(addrA, addrB)
		})
	}
}
