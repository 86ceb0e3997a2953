package roce

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestSequenceErrors: a NAK of a PSN sequence error has everything from its PSN on sent again, even if a NAK for
// another PSN came just before, or one for the same PSN a while ago. The window shrinks once for what is lost in one
// round trip.
func TestSequenceErrors(t *testing.T) {
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		window := func() int { return r.dev.dev.qpInfos()[0].Window }
		before := window()
		r.post(1, verbs.WRRDMAWrite, 1000)
		r.answers()
		r.send(r.nak(wire.NAKPSNSequenceError, 101))
		r.expect("RC_RDMA_WRITE_ONLY 101 +256", "RC_RDMA_WRITE_ONLY 102 +256", "RC_RDMA_WRITE_ONLY 103 +232")
		r.send(r.nak(wire.NAKPSNSequenceError, 103))
		r.expect("RC_RDMA_WRITE_ONLY 103 +232")
		if window() != before/2 {
			t.Errorf("window %d after %d", window(), before)
		}
		r.send(r.nak(wire.NAKPSNSequenceError, 103)) // before what was sent again can have been answered
		r.expect()
		time.Sleep(2 * assumedRTT)
		r.send(r.nak(wire.NAKPSNSequenceError, 103))
		r.expect("RC_RDMA_WRITE_ONLY 103 +232")
		r.send(r.ack(103))
		r.dev.want(1, verbs.WCSuccess)
	})
}

// TestSilenceClosesWindow: silence halves the window, but only once until something is heard, and with a peer of our
// kind not before it was asked what it has. From then on only the oldest packet is sent. When something is heard all
// others follow, even those that the peer had held: it may have dropped them.
func TestSilenceClosesWindow(t *testing.T) {
	for _, ours := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRaw(t, pairConfig{ours: ours})
			window := func() int { return r.dev.dev.qpInfos()[0].Window }
			r.post(1, verbs.WRRDMAWrite, 3*rawMTU)
			r.answers()
			if ours {
				r.send(r.arrived(100, 1, 2))
				r.expect("RC_RDMA_WRITE_ONLY 100 +256")
			}
			for hushed(r.dev) == 0 {
				if window() != initialWindow {
					t.Fatalf("ours=%v: the window is %d before the peer is taken to be gone", ours, window())
				}
				time.Sleep(time.Millisecond)
			}
			r.answers()
			time.Sleep(300 * time.Millisecond)
			for _, sent := range r.answers() {
				if sent != "RC_RDMA_WRITE_ONLY 100 +256" {
					t.Errorf("ours=%v: during silence it sends %s", ours, sent)
				}
			}
			if window() != initialWindow/2 {
				t.Errorf("ours=%v: the window is %d after silence, want %d", ours, window(), initialWindow/2)
			}
			r.send(r.ack(100))
			r.expect("RC_RDMA_WRITE_ONLY 101 +256", "RC_RDMA_WRITE_ONLY 102 +256")
			r.send(r.ack(102))
			r.dev.want(1, verbs.WCSuccess)
		})
	}
}

// TestSequenceErrorsWithoutEnd: NAKs for one PSN, and reports that it alone is missing, are retries, but only one in
// each ACK timeout: a path that reorders makes many of one loss. When all retries are used up the connection ends (IBTA
// 9.7.5.2.8), even if the peer is heard all the time.
func TestSequenceErrorsWithoutEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		op     verbs.WROpcode
		ours   bool
		answer func(r *rawPeer) *wire.Packet
	}{
		{"NAK", verbs.WRSend, false, func(r *rawPeer) *wire.Packet { return r.nak(wire.NAKPSNSequenceError, 100) }},
		{"NAK of ours, which has no room", verbs.WRSend, true, func(r *rawPeer) *wire.Packet { return r.nak(wire.NAKPSNSequenceError, 100) }},
		{"selective ACK", verbs.WRSend, true, func(r *rawPeer) *wire.Packet { return r.arrived(100, 1) }},
		{"ACK that overtakes an answer", verbs.WRRDMARead, true, func(r *rawPeer) *wire.Packet { return r.ack(101) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, pairConfig{ours: c.ours})
				r.post(1, c.op, 10)
				r.post(2, verbs.WRSend, 10)
				began := time.Now()
				for r.dev.qp.Query().State == verbs.RTS && time.Since(began) < time.Minute {
					r.send(c.answer(r))
					r.answers()
					time.Sleep(5 * time.Millisecond)
				}
				r.dev.want(1, verbs.WCRetryExcErr)
				a := r.dev.qp.Query()
				took, timeout := time.Since(began), wire.AckTimeout(a.Timeout)
				if tries := int(took / timeout); tries != 1+int(a.RetryCnt) {
					t.Errorf("gave up after %v, timeout is %v", took, timeout)
				}
			})
		})
	}
}

// TestWaitForReceiverIsNoSilence: while the peer has asked to wait, nothing is expected of it, and the ACK timeout begins
// when the request is sent again. A second RNR NAK for the same packet changes nothing, and an ACK ends the wait.
func TestWaitForReceiverIsNoSilence(t *testing.T) {
	for name, with := range map[string]func(string, *testing.T, func(*testing.T, *rawPeer)){
		"another kind": rawTest, "our kind": selectiveTest,
	} {
		with(name, t, func(t *testing.T, r *rawPeer) {
			const timer = 0 // the longest
			silences := func() uint64 {
				c := r.dev.dev.Counters()
				return c[EarlyRetransmit] + c[LocalAckTimeoutErr]
			}
			r.post(1, verbs.WRSend, 10)
			r.expect("RC_SEND_ONLY 100 +10")
			r.send(r.nak(wire.RNRNAK(timer), 100), r.nak(wire.RNRNAK(timer), 100))
			time.Sleep(wire.RNRTimer(timer) - time.Millisecond)
			r.expect()
			if n := silences(); n > 0 {
				t.Errorf("%d timeouts while the peer isn't ready", n)
			}
			time.Sleep(time.Millisecond)
			r.expect("RC_SEND_ONLY 100 +10")
			time.Sleep(100 * time.Millisecond)
			if c := r.dev.dev.Counters(); c[LocalAckTimeoutErr] > 0 {
				t.Errorf("the ACK timeout is over after %v", 100*time.Millisecond)
			}
			r.send(r.ack(100))
			r.dev.want(1, verbs.WCSuccess)
		})
		with(name+", which has it after all", t, func(t *testing.T, r *rawPeer) {
			r.post(1, verbs.WRSend, 10)
			r.post(2, verbs.WRSend, 10)
			r.answers()
			r.send(r.nak(wire.RNRNAK(0), 100))
			r.expect()
			r.send(r.ack(100)) // for an earlier transmission
			r.expect("RC_SEND_ONLY 101 +10")
		})
	}
}
