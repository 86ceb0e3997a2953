package roce

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

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
		{"with a NAK", func(r *rawPeer) *wire.Packet {
			p := r.packet(wire.RCReadResponseFirst, 100, 256)
			p.AETH.Syndrome = wire.NAKRemoteAccessError
			return p
		}, verbs.WCBadRespErr},
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
// our kind, ends the connection. That READ isn't complete, and is not at fault.
func TestBadResponseAhead(t *testing.T) {
	for name, c := range map[string]struct {
		op     verbs.WROpcode // of the second request
		answer func(r *rawPeer) *wire.Packet
		status verbs.WCStatus // of the second request
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
		"a NAK for a SEND":     {verbs.WRSend, func(r *rawPeer) *wire.Packet { return r.nak(wire.NAKRemoteAccessError, 103) }, verbs.WCRemAccessErr},
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
				r.dev.want(1, verbs.WCWRFlushErr)
				r.dev.want(2, c.status)
				if st := r.dev.qp.Query().State; st != verbs.Err {
					t.Errorf("state %v", st)
				}
				time.Sleep(time.Minute)
				r.expect() // no timer runs any more
			})
		})
	}
}

// TestNAKBehindRead: the same with a NAK from any other peer.
func TestNAKBehindRead(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, 600), RemoteAddr: 1 << 40, RKey: 7},
			verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: r.dev.sge(0, 8)},
			verbs.SendWR{WRID: 3, Opcode: verbs.WRSend, SGList: r.dev.sge(0, 8)},
			verbs.SendWR{WRID: 4, Opcode: verbs.WRSend, SGList: r.dev.sge(0, 8)})
		r.expect("RC_RDMA_READ_REQUEST 100", "RC_SEND_ONLY 103 +8", "RC_SEND_ONLY 104 +8", "RC_SEND_ONLY 105 +8")
		r.send(r.nak(wire.NAKInvalidRequest, 104))
		r.dev.want(1, verbs.WCWRFlushErr)
		r.dev.want(2, verbs.WCWRFlushErr)
		r.dev.want(3, verbs.WCRemInvReqErr)
		r.dev.want(4, verbs.WCWRFlushErr)
	})
}

// TestNotReadyBehindRead: the same with a peer of our kind that stays not ready for a SEND.
func TestNotReadyBehindRead(t *testing.T) {
	selectiveTest("", t, func(t *testing.T, r *rawPeer) {
		r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, 600), RemoteAddr: 1 << 40, RKey: 7},
			verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: r.dev.sge(0, 8)})
		for range 2 { // it may be tried once more
			if n := len(r.answers()); n != 2 {
				t.Fatalf("%d requests", n)
			}
			r.send(r.nak(wire.RNRNAK(1), 103))
			time.Sleep(time.Millisecond)
		}
		r.dev.want(1, verbs.WCWRFlushErr)
		r.dev.want(2, verbs.WCRNRRetryExcErr)
	})
}

// TestNoPlaceAhead: if the memory for an answer is gone when that, or a later part of it, arrives first, its READ or atomic
// fails, and not the SEND before it, which the peer has executed, nor a READ whose answer is missing.
func TestNoPlaceAhead(t *testing.T) {
	for name, c := range map[string]struct {
		op     verbs.WROpcode
		length int
		answer func(r *rawPeer) *wire.Packet
	}{
		"READ":   {verbs.WRRDMARead, 600, func(r *rawPeer) *wire.Packet { return r.packet(wire.RCReadResponseMiddle, 105, 256) }},
		"atomic": {verbs.WRAtomicFetchAndAdd, 8, func(r *rawPeer) *wire.Packet { return r.packet(wire.RCAtomicAcknowledge, 104, 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, pairConfig{ours: true})
				m, err := r.dev.pd.RegMR(make([]byte, 600), verbs.AccessLocalWrite)
				check(t, err)
				r.post(1, verbs.WRSend, 8)
				r.post(2, verbs.WRRDMARead, 600)
				r.dev.post(verbs.SendWR{
					WRID: 3, Opcode: c.op, SGList: []verbs.SGE{{Addr: m.Addr(), Length: uint32(c.length), LKey: m.LKey()}},
					RemoteAddr: 1 << 40, RKey: 7,
				})
				if n := len(r.answers()); n != 3 {
					t.Fatalf("%d requests", n)
				}
				check(t, m.Dereg())
				r.send(c.answer(r))
				r.dev.want(1, verbs.WCSuccess)
				r.dev.want(2, verbs.WCWRFlushErr)
				r.dev.want(3, verbs.WCLocProtErr)
			})
		})
	}
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
