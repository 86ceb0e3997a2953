package cm

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// pair runs f in virtual time with an initiator, a target and a listener of the latter that
// accepts, and checks that Close ends every goroutine and QP.
func pair(t *testing.T, f func(t *testing.T, n *network, host, target *node, l *end)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		host := newNode(t, n, "127.0.0.2", Config{})
		target := newNode(t, n, "127.0.0.1", Config{})
		f(t, n, host, target, target.listen(0))
		host.m.Close()
		target.m.Close()
		if h, g := host.dev.liveQPs(), target.dev.liveQPs(); h+g != 0 {
			t.Errorf("QPs left: %d %d", h, g)
		}
		host.wantEmpty()
		target.wantEmpty()
		time.Sleep(time.Minute) // delayed MADs
	})
}

// established waits until both sides know that they are connected.
func established(h, l *end) {
	h.want(verbs.CMEstablished)
	l.id = l.want(verbs.CMConnectRequest).ID
	l.want(verbs.CMEstablished)
}

// ended waits until both sides know that the connection has ended, which h begins.
func ended(h, l *end) {
	if err := h.id.Disconnect(); err != nil {
		h.t.Error(err)
	}
	l.want(verbs.CMDisconnected)
	if err := l.id.Disconnect(); err != nil {
		h.t.Error(err)
	}
	h.want(verbs.CMDisconnected)
	h.want(verbs.CMTimewaitExit)
	l.want(verbs.CMTimewaitExit)
}

func TestConnectAndDisconnect(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		h := host.prepare(target.addr)
		if err := h.id.Connect(hostParam); err != nil {
			t.Fatal(err)
		}
		est := h.want(verbs.CMEstablished)
		req := l.want(verbs.CMConnectRequest)
		l.id = req.ID
		l.want(verbs.CMEstablished)

		// What each side hears of the other: READ counts turned round and the lower of both.
		p := req.Param
		if !bytes.HasPrefix(p.PrivateData, []byte("request\x00")) || len(p.PrivateData) != ULPPrivateSize ||
			p.ResponderResources != 0 || p.InitiatorDepth != 128 || !p.FlowControl || p.RetryCount != 7 || p.RNRRetryCount != 7 {
			t.Errorf("request %+v", p)
		}
		p = est.Param
		if !bytes.HasPrefix(p.PrivateData, []byte("reply\x00")) || len(p.PrivateData) != REPPrivateSize ||
			p.ResponderResources != 64 || p.InitiatorDepth != 0 || !p.FlowControl || p.RNRRetryCount != 6 {
			t.Errorf("reply %+v", p)
		}
		if req.ID.RemoteAddr() != h.id.LocalAddr() || req.ID.LocalAddr() != h.id.RemoteAddr() {
			t.Errorf("addresses %v %v, %v %v", req.ID.LocalAddr(), req.ID.RemoteAddr(), h.id.LocalAddr(), h.id.RemoteAddr())
		}
		if req.ID.Device() != verbs.Device(target.dev) || h.id.Device() != verbs.Device(host.dev) {
			t.Error("wrong device")
		}
		checkQPs(t, n, h, l)

		start := time.Now()
		ended(h, l)
		if d := time.Since(start); d != 512*time.Millisecond { // ACK timeout 17
			t.Errorf("TIMEWAIT ended after %v", d)
		}
		if a, b := h.qp().Query().State, l.qp().Query().State; a != verbs.Err || b != verbs.Err {
			t.Errorf("QP states %v %v", a, b)
		}
		for _, c := range []struct {
			name string
			got  uint64
		}{
			{"Connects", host.m.Counters().Connects.Load()}, {"Accepts", target.m.Counters().Accepts.Load()},
			{"Disconnects", host.m.Counters().Disconnects.Load()}, {"Disconnects", target.m.Counters().Disconnects.Load()},
			{"REQ", host.m.Counters().Sent.Of(AttrREQ).Load()}, {"DREP", host.m.Counters().Received.Of(AttrDREP).Load()},
		} {
			if c.got != 1 {
				t.Errorf("counter %s: %d, want 1", c.name, c.got)
			}
		}
		host.wantEmpty()
		target.wantEmpty()
	})
}

// checkQPs compares the attributes of both QPs with the messages and with each other.
func checkQPs(t *testing.T, n *network, h, l *end) {
	t.Helper()
	req := n.sent(h.addr, AttrREQ)[0].msg.(*REQ)
	rep := n.sent(l.addr, AttrREP)[0].msg.(*REP)
	a, b := h.qp().Query(), l.qp().Query()
	if a.State != verbs.RTS || b.State != verbs.RTS {
		t.Errorf("states %v %v", a.State, b.State)
	}
	if a.DestQPN != l.qp().num || b.DestQPN != h.qp().num || a.Remote != l.addr || b.Remote != h.addr {
		t.Errorf("peers %+v\n%+v", a, b)
	}
	// The starting PSN of a message is for its receiver.
	if a.SQPSN != b.RQPSN || a.RQPSN != b.SQPSN || b.SQPSN != req.StartingPSN || a.SQPSN != rep.StartingPSN {
		t.Errorf("PSNs %x %x, %x %x", a.SQPSN, a.RQPSN, b.SQPSN, b.RQPSN)
	}
	if a.PathMTU != verbs.MTU4096 || b.PathMTU != verbs.MTU4096 {
		t.Errorf("MTUs %v %v", a.PathMTU, b.PathMTU)
	}
	if a.MaxDestRdAtomic != 64 || b.MaxRdAtomic != 64 || a.MaxRdAtomic != 0 || b.MaxDestRdAtomic != 0 {
		t.Errorf("READs %d %d, %d %d", a.MaxDestRdAtomic, a.MaxRdAtomic, b.MaxDestRdAtomic, b.MaxRdAtomic)
	}
	if a.Timeout != 17 || b.Timeout != 17 || a.RetryCnt != 7 || b.RetryCnt != 7 || a.RNRRetry != 6 || b.RNRRetry != 7 {
		t.Errorf("retries %+v\n%+v", a, b)
	}
	if a.MinRNRTimer != minRNRTimer || b.MinRNRTimer != minRNRTimer {
		t.Errorf("RNR timers %d %d", a.MinRNRTimer, b.MinRNRTimer)
	}
	if h.qp().access != verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic ||
		l.qp().access != verbs.AccessRemoteWrite {
		t.Errorf("access %b %b", h.qp().access, l.qp().access)
	}
}

func TestREQLikeLinux(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		h := host.connect(target.addr)
		established(h, l)
		got := *n.sent(host.addr, AttrREQ)[0].msg.(*REQ)
		_, m := linuxSample(t, "6.12-mtu9000/rdma-02-connect", "1")
		want := *m.(*REQ)
		for _, r := range []*REQ{&got, &want} { // what must differ
			r.LocalCommID, r.LocalCAGUID, r.LocalQPN, r.StartingPSN = 0, 0, 0, 0
			r.Primary.LocalGID, r.Primary.RemoteGID, r.Primary.FlowLabel = verbs.GID{}, verbs.GID{}, 0
			r.PrivateData = [REQPrivateSize]byte{}
		}
		if got != want {
			t.Errorf("got\n%+v\nLinux\n%+v", got, want)
		}
	})
}

// first acts on the first message of a kind only.
func first(a AttributeID, copies ...time.Duration) func(wired) []time.Duration {
	done := false
	return func(w wired) []time.Duration {
		if done || w.msg.AttributeID() != a {
			return []time.Duration{0}
		}
		done = true
		return copies
	}
}

var exchange = []AttributeID{AttrREQ, AttrREP, AttrRTU, AttrDREQ, AttrDREP}

// One lost message costs a retransmission interval and nothing else.
func TestLoss(t *testing.T) {
	for _, a := range exchange {
		t.Run(a.String(), func(t *testing.T) {
			pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
				n.setFilter(first(a))
				start := time.Now()
				h := host.connect(target.addr)
				established(h, l)
				ended(h, l)
				want := 512 * time.Millisecond
				switch a {
				case AttrREQ:
					want += 4608 * time.Millisecond
				case AttrDREQ, AttrDREP:
					want += dreqInterval
				default:
					want += 4096 * time.Millisecond
				}
				if got := time.Since(start); got != want {
					t.Errorf("took %v, want %v", got, want)
				}
				if total := host.m.Counters().Retransmits.Load() + target.m.Counters().Retransmits.Load(); total == 0 {
					t.Error("no retransmission counted")
				}
				h.wantNone()
				l.wantNone()
			})
		})
	}
}

// A message that comes twice, at once or late, is taken once.
func TestDuplication(t *testing.T) {
	for _, a := range exchange {
		for _, late := range []time.Duration{time.Nanosecond, 300 * time.Millisecond, 20 * time.Second} {
			t.Run(a.String()+late.String(), func(t *testing.T) {
				pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
					n.setFilter(first(a, 0, late))
					h := host.connect(target.addr)
					established(h, l)
					time.Sleep(time.Second)
					ended(h, l)
					time.Sleep(time.Minute)
					h.wantNone()
					if a == AttrREQ && late > 10*time.Second {
						// After TIMEWAIT it is a request like any other; the peer has long forgotten it.
						l.want(verbs.CMConnectRequest)
						l.want(verbs.CMRejected)
					}
					l.wantNone()
				})
			})
		}
	}
}

// A message that is later than the retransmission timer.
func TestDelay(t *testing.T) {
	for _, a := range exchange {
		t.Run(a.String(), func(t *testing.T) {
			pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
				n.setFilter(first(a, 4700*time.Millisecond))
				h := host.connect(target.addr)
				established(h, l)
				time.Sleep(10 * time.Second)
				ended(h, l)
				h.wantNone()
				l.wantNone()
			})
		})
	}
}

func TestConsumerReject(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		l.handle = func(ev verbs.CMEvent) {
			if ev.Type != verbs.CMConnectRequest {
				return
			}
			if err := ev.ID.Reject([]byte{0, 0, 6, 0}); err != nil {
				t.Error(err)
			}
			if err := ev.ID.Destroy(); err != nil {
				t.Error(err)
			}
		}
		h := host.connect(target.addr)
		ev := h.want(verbs.CMRejected)
		if ev.Reason != verbs.RejectConsumer || !bytes.HasPrefix(ev.Param.PrivateData, []byte{0, 0, 6, 0}) {
			t.Errorf("reason %d, % x", ev.Reason, ev.Param.PrivateData[:8])
		}
		rej := n.sent(target.addr, AttrREJ)[0]
		if rej.msg.(*REJ).Local != 0 || rej.tid != n.sent(host.addr, AttrREQ)[0].tid {
			t.Errorf("REJ %x %+v", rej.tid, rej.msg.(*REJ).CommIDs)
		}
		if got := host.m.Counters().RejectsReceived.Of(verbs.RejectConsumer).Load(); got != 1 {
			t.Errorf("counted %d", got)
		}
	})
}

// What a REQ is refused for, and how.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*REQ)
		want   verbs.RejectReason
	}{
		{"other port", func(r *REQ) { r.ServiceID++ }, verbs.RejectInvalidServiceID},
		{"other port space", func(r *REQ) { r.ServiceID = 0x0111<<16 | 4420 }, verbs.RejectInvalidServiceID},
		{"transport type", func(r *REQ) { r.TransportType = 1 }, rejectInvalidTransport},
		{"remote GID", func(r *REQ) { r.Primary.RemoteGID[15]++ }, verbs.RejectInvalidGID},
		{"local GID", func(r *REQ) { r.Primary.LocalGID[15]++ }, verbs.RejectConsumer},
		{"header version", func(r *REQ) { r.PrivateData[0] = 1 }, verbs.RejectConsumer},
		{"header IP version", func(r *REQ) { r.PrivateData[1] = 0x60 }, verbs.RejectConsumer},
		{"header source", func(r *REQ) { r.PrivateData[19]++ }, verbs.RejectConsumer},
		{"header destination", func(r *REQ) { r.PrivateData[35]++ }, verbs.RejectConsumer},
		{"MTU 0", func(r *REQ) { r.PathMTU = 0 }, verbs.RejectInvalidMTU},
		{"MTU 6", func(r *REQ) { r.PathMTU = 6 }, verbs.RejectInvalidMTU},
		{"MTU too large", func(r *REQ) { r.PathMTU = verbs.MTU4096 }, verbs.RejectInvalidMTU},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
				target.m.attr.ActiveMTU = verbs.MTU2048
				p := newRawPeer(t, n, "127.0.0.9")
				req := p.req(target.addr, 7, 8)
				c.change(req)
				p.send(target.addr, 99, req)
				tid, rej := receive[*REJ](p)
				if tid != 99 || rej.CommIDs != (CommIDs{0, 7}) || rej.Message != AnswersREQ || rej.Reason != c.want {
					t.Errorf("TID %d %+v reason %d, want %d", tid, rej.CommIDs, rej.Reason, c.want)
				}
				gid := verbs.GIDFrom(target.addr)
				if c.want == verbs.RejectInvalidGID && !bytes.Equal(rej.ARI[:rej.InfoLength], gid[:]) {
					t.Errorf("ARI % x", rej.ARI[:rej.InfoLength])
				}
				l.wantNone()
			})
		})
	}
}

func TestConnectTimeout(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		nobody := netip.MustParseAddr("127.0.0.99")
		start := time.Now()
		h := host.connect(nobody)
		ev := h.want(verbs.CMUnreachable)
		if d := time.Since(start); d != 16*4608*time.Millisecond {
			t.Errorf("gave up after %v, want 73.728 s", d)
		}
		var op *OpError
		if !errors.Is(ev.Err, ErrTimeout) || !errors.As(ev.Err, &op) || !op.Timeout() || op.Peer.Addr() != nobody {
			t.Errorf("error %v", ev.Err)
		}
		if got := ev.Err.Error(); !strings.Contains(got, "connect to 127.0.0.99:4420: no answer to 16 tries") {
			t.Errorf("error text %q", got)
		}
		reqs := n.sent(host.addr, AttrREQ)
		if len(reqs) != 16 || reqs[15].tid != reqs[0].tid || *reqs[15].msg.(*REQ) != *reqs[0].msg.(*REQ) {
			t.Errorf("%d REQs, or not the same", len(reqs))
		}
		rej := n.sent(host.addr, AttrREJ)[0].msg.(*REJ)
		if rej.Reason != verbs.RejectTimeout || rej.Local != reqs[0].msg.(*REQ).LocalCommID ||
			rej.InfoLength != 8 || rej.guid() != host.dev.attr.NodeGUID {
			t.Errorf("REJ %+v", rej)
		}
		host.wantEmpty()
	})
}

// An address that the device can't send to fails at once.
func TestSendError(t *testing.T) {
	pair(t, func(t *testing.T, _ *network, host, target *node, l *end) {
		h := host.prepare(target.addr)
		noRoute := errors.New("network is unreachable")
		host.dev.setSendErr(noRoute)
		if err := h.id.Connect(hostParam); err != nil {
			t.Fatal(err)
		}
		if ev := h.want(verbs.CMUnreachable); !errors.Is(ev.Err, noRoute) {
			t.Errorf("error %v", ev.Err)
		}

		// A full queue is no more than a lost message.
		h = host.prepare(target.addr)
		host.dev.setSendErr(verbs.ErrNoMemory)
		if err := h.id.Connect(hostParam); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		host.dev.setSendErr(nil)
		established(h, l)
	})
}

// A passive side whose REP is never answered gives up, sooner than the peer asked for, and tells
// it so.
func TestAcceptTimeout(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		start := time.Now()
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		l.want(verbs.CMConnectRequest)
		ev := l.want(verbs.CMUnreachable)
		if d := time.Since(start); d != 4*4096*time.Millisecond || !errors.Is(ev.Err, ErrTimeout) {
			t.Errorf("%v after %v", ev.Err, d)
		}
		for range 4 {
			if tid, rep := receive[*REP](p); tid != 99 || rep.Remote != 7 {
				t.Errorf("TID %d, REP %+v", tid, rep.CommIDs)
			}
		}
		if _, rej := receive[*REJ](p); rej.Reason != verbs.RejectTimeout {
			t.Errorf("reason %d", rej.Reason)
		}
		target.wantEmpty()
	})
}

// A peer that gives up is heard, although it doesn't know our ID.
func TestPeerGivesUp(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		l.handle = nil
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		req := l.want(verbs.CMConnectRequest)
		rej := &REJ{CommIDs: CommIDs{Local: 7}, Message: AnswersOther, Reason: verbs.RejectTimeout}
		rej.setGUID(0x77)
		p.send(target.addr, 99, rej)
		if ev := l.want(verbs.CMRejected); ev.ID != req.ID || ev.Reason != verbs.RejectTimeout {
			t.Errorf("%+v", ev)
		}
		l.createQP(req.ID)
		if err := req.ID.Accept(acceptParam); !errors.Is(err, verbs.ErrState) {
			t.Errorf("accept: %v", err)
		}
		p.nothing()
	})
}

// A slow consumer: an MRA answers the repeated REQ, and the accept still counts.
func TestSlowAccept(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		l.handle = nil
		h := host.connect(target.addr)
		l.id = l.want(verbs.CMConnectRequest).ID
		time.Sleep(30 * time.Second)
		if reqs, mras := n.sent(host.addr, AttrREQ), n.sent(target.addr, AttrMRA); len(reqs) != 2 || len(mras) != 1 {
			t.Fatalf("%d REQs, %d MRAs, want 2, 1", len(reqs), len(mras))
		} else if mra := mras[0].msg.(*MRA); mra.Message != AnswersREQ || mra.ServiceTimeout != 24 || mras[0].tid != reqs[0].tid {
			t.Errorf("MRA %+v", mra)
		}
		time.Sleep(60 * time.Second)
		if reqs := n.sent(host.addr, AttrREQ); reqs[2].at.Sub(reqs[1].at) != 65536*time.Millisecond+512*time.Millisecond {
			t.Errorf("REQ again after %v", reqs[2].at.Sub(reqs[1].at))
		}
		l.createQP(l.id)
		if err := l.id.Accept(acceptParam); err != nil {
			t.Fatal(err)
		}
		h.want(verbs.CMEstablished)
		l.want(verbs.CMEstablished)
		ended(h, l)
	})
}

// An MRA to the REP keeps the passive side waiting as well, and no longer than it may.
func TestMRAofREP(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, rep := receive[*REP](p)
		start := time.Now()
		ids := CommIDs{7, rep.Local}
		p.send(target.addr, 99, &MRA{CommIDs: ids, Message: AnswersREP, ServiceTimeout: 31})
		receive[*REP](p)
		if d := time.Since(start); d != maxHalfOpenTime {
			t.Errorf("REP again after %v", d)
		}
		p.send(target.addr, 99, &MRA{CommIDs: ids, Message: AnswersREQ, ServiceTimeout: 1})
		p.send(target.addr, 99, &RTU{CommIDs: ids})
		l.want(verbs.CMConnectRequest)
		l.want(verbs.CMEstablished)
		if got := target.m.Counters().Dropped.Load(); got != 1 {
			t.Errorf("%d messages dropped, want the MRA of a REQ", got)
		}
	})
}

// A repeated REQ gets the same REP again, not a second connection.
func TestDuplicateREQ(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, one := receive[*REP](p)
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		if _, two := receive[*REP](p); *one != *two {
			t.Errorf("REPs differ")
		}
		p.send(target.addr, 99, &RTU{CommIDs: CommIDs{7, one.Local}})
		l.id = l.want(verbs.CMConnectRequest).ID
		l.want(verbs.CMEstablished)
		p.send(target.addr, 99, p.req(target.addr, 7, 8)) // ESTABLISHED: no answer
		synctest.Wait()
		p.nothing()
		if got := target.m.Counters().Duplicates.Load(); got != 2 {
			t.Errorf("%d duplicates counted, want 2", got)
		}
		p.send(target.addr, 100, &DREQ{CommIDs: CommIDs{7, one.Local}, RemoteQPN: one.LocalQPN})
		l.want(verbs.CMDisconnected)
		l.id.Disconnect()
		receive[*DREP](p)
		p.send(target.addr, 99, p.req(target.addr, 7, 8)) // TIMEWAIT
		if _, rej := receive[*REJ](p); rej.Reason != verbs.RejectStale {
			t.Errorf("reason %d", rej.Reason)
		}
	})
}

// A peer that comes back with the QPN of a live connection has lost that one.
func TestStaleREQ(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, rep := receive[*REP](p)
		p.send(target.addr, 99, &RTU{CommIDs: CommIDs{7, rep.Local}})
		l.want(verbs.CMConnectRequest)
		l.want(verbs.CMEstablished)

		p.send(target.addr, 101, p.req(target.addr, 70, 8))
		if tid, rej := receive[*REJ](p); tid != 101 || rej.Remote != 70 || rej.Reason != verbs.RejectStale {
			t.Errorf("TID %d %+v reason %d", tid, rej.CommIDs, rej.Reason)
		}
		tid, dreq := receive[*DREQ](p)
		if dreq.CommIDs != (CommIDs{rep.Local, 7}) || dreq.RemoteQPN != 8 || tid == 99 {
			t.Errorf("TID %d %+v", tid, dreq)
		}
		p.send(target.addr, tid, &DREP{CommIDs: CommIDs{7, rep.Local}})
		l.want(verbs.CMDisconnected)
		if got := target.m.Counters().StaleEvicted.Load(); got != 1 {
			t.Errorf("counted %d", got)
		}
		l.want(verbs.CMTimewaitExit)
		// Another host with the same numbers is no stale one.
		q := newRawPeer(t, n, "127.0.0.10")
		p.send(target.addr, 102, p.req(target.addr, 71, 8))
		receive[*REP](p)
		q.send(target.addr, 102, q.req(target.addr, 71, 8))
		receive[*REP](q)
	})
}

// The same seen from the active side: the REP names a QP that a live connection has.
func TestStaleREP(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		a := host.connect(p.addr)
		tid, req := receive[*REQ](p)
		rep := &REP{CommIDs: CommIDs{5, req.LocalCommID}, LocalQPN: 6, LocalCAGUID: 0x77}
		p.send(host.addr, tid, rep)
		a.want(verbs.CMEstablished)
		receive[*RTU](p)

		b := host.connect(p.addr)
		tid, req = receive[*REQ](p)
		rep.CommIDs = CommIDs{50, req.LocalCommID}
		p.send(host.addr, tid, rep)
		if ev := b.want(verbs.CMRejected); ev.Reason != verbs.RejectStale {
			t.Errorf("reason %d", ev.Reason)
		}
		if _, rej := receive[*REJ](p); rej.Reason != verbs.RejectStale || rej.Message != AnswersREP {
			t.Errorf("REJ %+v", rej)
		}
		receive[*DREQ](p)
	})
}

func TestCrossedDREQs(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		h := host.connect(target.addr)
		established(h, l)
		n.setFilter(func(wired) []time.Duration { return []time.Duration{time.Millisecond} })
		start := time.Now()
		h.id.Disconnect()
		l.id.Disconnect()
		h.want(verbs.CMDisconnected)
		l.want(verbs.CMDisconnected)
		if d := time.Since(start); d != time.Millisecond {
			t.Errorf("took %v", d)
		}
		h.want(verbs.CMTimewaitExit)
		l.want(verbs.CMTimewaitExit)
		h.wantNone()
		l.wantNone()
	})
}

// A DREQ that nobody answers ends the connection all the same.
func TestDREQUnanswered(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		h := host.connect(target.addr)
		established(h, l)
		n.setFilter(func(wired) []time.Duration { return nil })
		start := time.Now()
		h.id.Disconnect()
		h.want(verbs.CMDisconnected)
		if d := time.Since(start); d != (1+dreqRetries)*dreqInterval {
			t.Errorf("took %v", d)
		}
		h.want(verbs.CMTimewaitExit)
	})
}

func TestDREQChecks(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, rep := receive[*REP](p)
		ids := CommIDs{7, rep.Local}

		p.send(target.addr, 100, &DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN + 1}) // another QP: dropped
		synctest.Wait()
		p.nothing()

		p.send(target.addr, 101, &DREQ{CommIDs: CommIDs{70, 80}, RemoteQPN: 1}) // unknown: answered
		if tid, drep := receive[*DREP](p); tid != 101 || drep.CommIDs != (CommIDs{80, 70}) {
			t.Errorf("TID %d %+v", tid, drep.CommIDs)
		}
		q := newRawPeer(t, n, "127.0.0.10") // a stranger who knows the IDs
		q.send(target.addr, 102, &DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN})
		receive[*DREP](q)
		l.want(verbs.CMConnectRequest)
		l.wantNone()

		// In REP_SENT, the RTU being lost, it is a disconnect.
		p.send(target.addr, 103, &DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN})
		l.id = l.want(verbs.CMDisconnected).ID
		p.send(target.addr, 103, &DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN}) // no answer before the owner's
		synctest.Wait()
		p.nothing()
		if err := l.id.Disconnect(); err != nil {
			t.Error(err)
		}
		if tid, drep := receive[*DREP](p); tid != 103 || drep.CommIDs != (CommIDs{rep.Local, 7}) {
			t.Errorf("TID %d %+v", tid, drep.CommIDs)
		}
		p.send(target.addr, 103, &DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN}) // the DREP was lost
		receive[*DREP](p)
		l.want(verbs.CMTimewaitExit)
	})
}

// Disconnect before the RTU: a DREQ would be against the rules, so a REJ ends it.
func TestDisconnectInREPSent(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		n.setFilter(func(w wired) []time.Duration {
			if w.msg.AttributeID() == AttrRTU {
				return nil
			}
			return []time.Duration{0}
		})
		h := host.connect(target.addr)
		l.id = l.want(verbs.CMConnectRequest).ID
		h.want(verbs.CMEstablished)
		if err := l.id.Disconnect(); err != nil {
			t.Error(err)
		}
		l.want(verbs.CMDisconnected)
		h.want(verbs.CMDisconnected)
	})
}

// The first packet on the QP stands in for a lost RTU.
func TestCommEst(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		n.setFilter(first(AttrRTU))
		h := host.connect(target.addr)
		h.want(verbs.CMEstablished)
		l.id = l.want(verbs.CMConnectRequest).ID
		start := time.Now()
		qp := l.qp()
		qp.handler(verbs.AsyncEvent{Type: verbs.EventCommEst, QP: qp})
		qp.handler(verbs.AsyncEvent{Type: verbs.EventCommEst, QP: qp})
		l.want(verbs.CMEstablished)
		if time.Since(start) != 0 {
			t.Error("waited for the RTU")
		}
		time.Sleep(time.Minute)
		if got := len(n.sent(target.addr, AttrREP)); got != 1 {
			t.Errorf("%d REPs", got)
		}
		ended(h, l)
	})
}

func TestUnknownREP(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(host.addr, 99, &REP{CommIDs: CommIDs{1, 2}})
		if tid, rej := receive[*REJ](p); tid != 99 || rej.Remote != 1 || rej.Message != AnswersREP || rej.Reason != rejectInvalidCommID {
			t.Errorf("TID %d %+v", tid, rej)
		}
	})
}

func TestSIDRAndOthers(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(host.addr, 99, &SIDRREQ{RequestID: 3, ServiceID: 4})
		if tid, rep := receive[*SIDRREP](p); tid != 99 || rep.RequestID != 3 || rep.ServiceID != 4 || rep.Status != SIDRUnsupported {
			t.Errorf("TID %d %+v", tid, rep)
		}
		for _, m := range []Message{new(LAP), new(APR), new(SIDRREP), new(RTU), new(DREP), new(MRA), new(REJ)} {
			p.send(host.addr, 99, m)
		}
		host.m.arrived(p.addr, make([]byte, MADSize))
		synctest.Wait()
		p.nothing()
		c := host.m.Counters()
		if c.Dropped.Load() != 7 || c.Malformed.Load() != 1 {
			t.Errorf("dropped %d, malformed %d", c.Dropped.Load(), c.Malformed.Load())
		}
	})
}

func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		target := newNode(t, n, "127.0.0.1", Config{MaxHalfOpen: 5, MaxConnections: 6})
		defer target.m.Close()
		l := target.listen(3)
		l.handle = nil
		p := newRawPeer(t, n, "127.0.0.9")
		ask := func(i uint32) { p.send(target.addr, uint64(i), p.req(target.addr, i, 100+i)) }
		refused := func(i uint64) {
			t.Helper()
			if tid, rej := receive[*REJ](p); tid != i || rej.Reason != verbs.RejectNoResources {
				t.Errorf("TID %d reason %d", tid, rej.Reason)
			}
		}
		var ids []verbs.CMID
		for i := range uint32(4) {
			ask(i + 1)
		}
		refused(4) // the backlog is full
		for range 3 {
			ids = append(ids, l.want(verbs.CMConnectRequest).ID)
		}
		for _, id := range ids {
			l.createQP(id)
			if err := id.Accept(acceptParam); err != nil {
				t.Error(err)
			}
			receive[*REP](p)
		}
		ask(5)
		ask(6)
		ask(7)
		refused(7) // five half-open
		l.want(verbs.CMConnectRequest).ID.Reject(nil)
		receive[*REJ](p)
		ask(8)
		l.want(verbs.CMConnectRequest)
		l.want(verbs.CMConnectRequest)
		l.wantNone()
		if got := target.m.Counters().HalfOpen.Load(); got != 5 {
			t.Errorf("%d half-open", got)
		}
	})
}

// Everything from inside handlers, to the end.
func TestCallsFromHandlers(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		check := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		accept := l.handle
		l.handle = func(ev verbs.CMEvent) {
			accept(ev)
			if ev.Type == verbs.CMDisconnected {
				check(ev.ID.Disconnect())
			}
			if ev.Type == verbs.CMTimewaitExit {
				check(ev.ID.Destroy())
			}
		}
		h := host.newEnd()
		h.handle = func(ev verbs.CMEvent) {
			switch ev.Type {
			case verbs.CMAddrResolved:
				check(ev.ID.ResolveRoute(0))
			case verbs.CMRouteResolved:
				h.createQP(ev.ID)
				check(ev.ID.Connect(hostParam))
			case verbs.CMEstablished:
				ev.ID.SetHandler(func(ev verbs.CMEvent) {
					h.events <- ev
					if ev.Type == verbs.CMTimewaitExit {
						check(ev.ID.Destroy())
						close(h.events)
					}
				})
				check(ev.ID.Disconnect())
			}
		}
		check(h.id.ResolveAddr(host.addr, netip.AddrPortFrom(target.addr, 4420), 0))
		for _, e := range []verbs.CMEventType{
			verbs.CMAddrResolved, verbs.CMRouteResolved, verbs.CMEstablished, verbs.CMDisconnected, verbs.CMTimewaitExit,
		} {
			h.want(e)
		}
		for _, e := range []verbs.CMEventType{
			verbs.CMConnectRequest, verbs.CMEstablished, verbs.CMDisconnected, verbs.CMTimewaitExit,
		} {
			l.want(e)
		}
	})
}

// Destroy tells the peer what the state allows, and no event follows.
func TestDestroy(t *testing.T) {
	t.Run("connecting", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			l.handle = nil
			h := host.connect(target.addr)
			l.want(verbs.CMConnectRequest)
			h.id.Destroy()
			if ev := l.want(verbs.CMRejected); ev.Reason != verbs.RejectTimeout {
				t.Errorf("reason %d", ev.Reason)
			}
			h.wantNone()
		})
	})
	t.Run("requested", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			l.handle = nil
			h := host.connect(target.addr)
			l.want(verbs.CMConnectRequest).ID.Destroy()
			if ev := h.want(verbs.CMRejected); ev.Reason != verbs.RejectConsumer {
				t.Errorf("reason %d", ev.Reason)
			}
		})
	})
	t.Run("accepted", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
			p := newRawPeer(t, n, "127.0.0.9")
			p.send(target.addr, 99, p.req(target.addr, 7, 8))
			receive[*REP](p)
			l.want(verbs.CMConnectRequest).ID.Destroy()
			if _, rej := receive[*REJ](p); rej.Reason != verbs.RejectConsumer || rej.Remote != 7 {
				t.Errorf("REJ %+v", rej)
			}
			l.wantNone()
		})
	})
	t.Run("established", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			h := host.connect(target.addr)
			established(h, l)
			n.setFilter(first(AttrDREQ)) // lost: the connection outlives its owner to send it again
			h.id.Destroy()
			h.id.Destroy()
			l.want(verbs.CMDisconnected)
			l.id.Destroy()
			time.Sleep(time.Minute)
			host.wantEmpty()
			target.wantEmpty()
			h.wantNone()
			l.wantNone()
			if host.dev.liveQPs()+target.dev.liveQPs() != 0 {
				t.Error("QPs left")
			}
			if err := h.id.Disconnect(); !errors.Is(err, verbs.ErrState) {
				t.Errorf("disconnect: %v", err)
			}
			if err := h.id.Connect(hostParam); !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("connect: %v", err)
			}
		})
	})
	t.Run("listener", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			l.id.Destroy()
			h := host.connect(target.addr)
			if ev := h.want(verbs.CMRejected); ev.Reason != verbs.RejectInvalidServiceID {
				t.Errorf("reason %d", ev.Reason)
			}
			again := target.newEnd()
			if err := again.id.Listen(netip.AddrPortFrom(target.addr, 4420), 1); err != nil {
				t.Error(err)
			}
		})
	})
}

// A request whose listener goes before its handler ran is refused, not forgotten.
func TestListenerGoneBeforeRequest(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		block, entered := make(chan struct{}), make(chan struct{})
		other := target.newEnd()
		other.handle = func(ev verbs.CMEvent) {
			if ev.Type == verbs.CMAddrResolved {
				close(entered)
				<-block
			}
		}
		other.id.ResolveAddr(netip.Addr{}, netip.AddrPortFrom(host.addr, 1), 0)
		<-entered
		h := host.connect(target.addr)
		synctest.Wait()
		l.id.Destroy()
		close(block)
		if ev := h.want(verbs.CMRejected); ev.Reason != verbs.RejectInvalidServiceID {
			t.Errorf("reason %d", ev.Reason)
		}
		l.wantNone()
	})
}

// QPs that can't be moved fail the attempt on either side.
func TestQPErrors(t *testing.T) {
	broken := errors.New("no such address")
	t.Run("active", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			h := host.prepare(target.addr)
			h.qp().pd.modifyErr = broken
			h.id.Connect(hostParam)
			if ev := h.want(verbs.CMConnectError); !errors.Is(ev.Err, broken) {
				t.Errorf("error %v", ev.Err)
			}
			l.want(verbs.CMConnectRequest)
			if ev := l.want(verbs.CMRejected); ev.Reason != verbs.RejectNoResources {
				t.Errorf("reason %d", ev.Reason)
			}
		})
	})
	t.Run("passive", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			l.handle = func(ev verbs.CMEvent) {
				if ev.Type != verbs.CMConnectRequest {
					return
				}
				l.createQP(ev.ID).pd.modifyErr = broken
				if err := ev.ID.Accept(acceptParam); !errors.Is(err, broken) {
					t.Errorf("accept: %v", err)
				}
			}
			h := host.connect(target.addr)
			if ev := h.want(verbs.CMRejected); ev.Reason != verbs.RejectNoResources {
				t.Errorf("reason %d", ev.Reason)
			}
		})
	})
}

func TestWrongCalls(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		dst := netip.AddrPortFrom(target.addr, 4420)
		is := func(what string, err, want error) {
			t.Helper()
			var op *OpError
			if !errors.Is(err, want) || !errors.As(err, &op) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		e := host.newEnd()
		if e.id.Device() != nil || e.id.QP() != nil {
			t.Error("device or QP before ResolveAddr")
		}
		is("route first", e.id.ResolveRoute(0), verbs.ErrState)
		is("connect first", e.id.Connect(hostParam), verbs.ErrState)
		is("accept", e.id.Accept(hostParam), verbs.ErrState)
		is("reject", e.id.Reject(nil), verbs.ErrState)
		is("disconnect", e.id.Disconnect(), verbs.ErrState)
		_, err := e.id.CreateQP(&fakePD{dev: host.dev}, verbs.QPInitAttr{Type: verbs.RC})
		is("QP first", err, verbs.ErrState)
		for _, bad := range []string{"0.0.0.0:1", "224.0.0.1:1", "127.0.0.1:0"} {
			is(bad, e.id.ResolveAddr(netip.Addr{}, netip.MustParseAddrPort(bad), 0), verbs.ErrInvalid)
		}
		for _, c := range []struct{ src, dst string }{{"127.0.0.3", "127.0.0.1:1"}, {"0.0.0.0", "[::1]:1"}} {
			if err := e.id.ResolveAddr(netip.MustParseAddr(c.src), netip.MustParseAddrPort(c.dst), 0); err != nil {
				t.Error(err)
			}
			is(c.dst, e.want(verbs.CMAddrError).Err, ErrUnreachable)
		}
		is("listen elsewhere", e.id.Listen(netip.MustParseAddrPort("127.0.0.77:1"), 1), ErrUnreachable)
		is("port taken", target.newEnd().id.Listen(dst, 1), ErrAddrInUse)
		free := target.newEnd()
		if err := free.id.Listen(netip.AddrPort{}, 1); err != nil || free.id.LocalAddr().Port() < 49152 {
			t.Errorf("any port: %v %v", free.id.LocalAddr(), err)
		}

		h := host.prepare(target.addr)
		_, err = h.id.CreateQP(&fakePD{dev: host.dev}, verbs.QPInitAttr{Type: verbs.RC})
		is("second QP", err, verbs.ErrState)
		_, err = h.id.CreateQP(&fakePD{dev: host.dev}, verbs.QPInitAttr{Type: verbs.UD})
		is("UD", err, verbs.ErrInvalid)
		is("too much private data", h.id.Connect(verbs.ConnParam{PrivateData: make([]byte, 57)}), verbs.ErrInvalid)
		is("retry count", h.id.Connect(verbs.ConnParam{RetryCount: 8}), verbs.ErrInvalid)
		is("RNR retry count", h.id.Connect(verbs.ConnParam{RNRRetryCount: 8}), verbs.ErrInvalid)

		l.handle = func(ev verbs.CMEvent) {
			if ev.Type != verbs.CMConnectRequest {
				return
			}
			is("no QP", ev.ID.Accept(acceptParam), verbs.ErrState)
			is("disconnect", ev.ID.Disconnect(), verbs.ErrState)
			is("reject", ev.ID.Reject(make([]byte, 149)), verbs.ErrInvalid)
			l.createQP(ev.ID)
			is("accept", ev.ID.Accept(verbs.ConnParam{PrivateData: make([]byte, 197)}), verbs.ErrInvalid)
			if err := ev.ID.Accept(acceptParam); err != nil {
				t.Error(err)
			}
			is("accept again", ev.ID.Accept(acceptParam), verbs.ErrState)
			is("reject after accept", ev.ID.Reject(nil), verbs.ErrState)
		}
		if err := h.id.Connect(hostParam); err != nil {
			t.Fatal(err)
		}
		is("connect again", h.id.Connect(hostParam), verbs.ErrState)
		established(h, l)
		host.m.Close()
		_, err = host.m.CreateID(nil)
		is("closed", err, verbs.ErrClosed)
	})
	if _, err := New(newDevice(newNetwork(), "127.0.0.1"), Config{MaxHalfOpen: -1}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("config: %v", err)
	}
}

// Close tells owners and peers.
func TestClose(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		a := host.connect(target.addr)
		established(a, l)
		b := host.connect(target.addr)
		b.want(verbs.CMEstablished)
		b.handle = func(ev verbs.CMEvent) {
			if err := ev.ID.Disconnect(); err != nil {
				t.Error(err)
			}
			ev.ID.Destroy()
		}
		host.m.Close()
		host.m.Close()
		a.want(verbs.CMDeviceRemoval)
		b.want(verbs.CMDeviceRemoval)
		l.want(verbs.CMConnectRequest)
		l.want(verbs.CMEstablished)
		l.want(verbs.CMDisconnected)
		l.want(verbs.CMDisconnected)
		if host.dev.liveQPs() != 0 {
			t.Error("QPs left")
		}
	})
}

// IPv6, by the same path.
func TestIPv6(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		host, target := newNode(t, n, "2001:db8::2", Config{}), newNode(t, n, "2001:db8::1", Config{})
		defer host.m.Close()
		defer target.m.Close()
		l := target.listen(0)
		h := host.connect(target.addr)
		established(h, l)
		ended(h, l)
	})
}

// The box for MADs is bounded: while a handler runs, a flood is dropped, not kept.
func TestFlood(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		l.handle = func(ev verbs.CMEvent) {
			if ev.Type != verbs.CMConnectRequest {
				return
			}
			p := make([]byte, MADSize)
			for range 2 * inboxSize {
				target.m.arrived(ev.ID.RemoteAddr().Addr(), p)
			}
		}
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		l.want(verbs.CMConnectRequest)
		synctest.Wait()
		c := target.m.Counters()
		if c.Overruns.Load() != inboxSize || c.Malformed.Load() != inboxSize {
			t.Errorf("overruns %d, malformed %d", c.Overruns.Load(), c.Malformed.Load())
		}
	})
}

// Many connections at once over a network that loses, repeats and delays: each is made once and
// ends on both sides, and nothing stays behind.
func TestMetamorphic(t *testing.T) {
	for seed := range uint64(4) {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			r := rand.New(rand.NewPCG(seed, 1))
			n.setFilter(func(wired) []time.Duration {
				d := time.Duration(r.IntN(int(6 * time.Second)))
				switch r.IntN(10) {
				case 0, 1:
					return nil
				case 2:
					return []time.Duration{0, d}
				case 3:
					return []time.Duration{d}
				}
				return []time.Duration{0}
			})
			accept := l.handle
			l.handle = func(ev verbs.CMEvent) {
				accept(ev)
				if ev.Type == verbs.CMDisconnected {
					ev.ID.Disconnect()
				}
				if ev.Type == verbs.CMTimewaitExit || ev.Type == verbs.CMUnreachable || ev.Type == verbs.CMRejected {
					ev.ID.Destroy()
				}
			}
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					h := host.connect(target.addr)
					h.want(verbs.CMEstablished)
					time.Sleep(7 * time.Second) // past the last late MAD
					h.id.Disconnect()
					h.want(verbs.CMDisconnected)
					h.want(verbs.CMTimewaitExit)
					h.id.Destroy()
				})
			}
			wg.Wait()
			time.Sleep(5 * time.Minute)
			host.wantEmpty()
			target.wantEmpty()
			if h, g := host.dev.liveQPs(), target.dev.liveQPs(); h+g != 0 {
				t.Errorf("QPs left: %d %d", h, g)
			}
			counts := map[verbs.CMID]map[verbs.CMEventType]int{}
			for len(l.events) > 0 {
				ev := <-l.events
				if counts[ev.ID] == nil {
					counts[ev.ID] = map[verbs.CMEventType]int{}
				}
				counts[ev.ID][ev.Type]++
			}
			for _, c := range counts {
				for typ, times := range c {
					if times != 1 {
						t.Errorf("event %d came %d times", typ, times)
					}
				}
			}
		})
	}
}
