package cm

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

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

		// What each side learns about the other: READ counts swapped, and the lower of both.
		p := req.Param
		if !bytes.HasPrefix(p.PrivateData, []byte("request\x00")) || len(p.PrivateData) != mad.ULPPrivateSize ||
			p.ResponderResources != 0 || p.InitiatorDepth != 128 || !p.FlowControl || p.RetryCount != 7 || p.RNRRetryCount != 7 {
			t.Errorf("request %+v", p)
		}
		p = est.Param
		if !bytes.HasPrefix(p.PrivateData, []byte("reply\x00")) || len(p.PrivateData) != mad.REPPrivateSize ||
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
			{"REQ", host.m.Counters().Sent.Of(mad.AttrREQ).Load()}, {"DREP", host.m.Counters().Received.Of(mad.AttrDREP).Load()},
		} {
			if c.got != 1 {
				t.Errorf("counter %s: %d, want 1", c.name, c.got)
			}
		}
		host.wantEmpty()
		target.wantEmpty()
	})
}

// Each side declares independently whether it has flow control, and how often the other should retry if no receive is
// posted.
func TestFlowControl(t *testing.T) {
	for _, flow := range []bool{false, true} {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			accept := acceptParam
			accept.FlowControl = !flow
			l.handle = func(ev verbs.CMEvent) {
				if ev.Type == verbs.CMConnectRequest {
					l.createQP(ev.ID)
					if err := ev.ID.Accept(accept); err != nil {
						t.Error(err)
					}
				}
			}
			h := host.prepare(target.addr)
			if err := h.id.Connect(verbs.ConnParam{FlowControl: flow, RetryCount: 3, RNRRetryCount: 2}); err != nil {
				t.Fatal(err)
			}
			asked, told := l.want(verbs.CMConnectRequest), h.want(verbs.CMEstablished).Param
			if p := asked.Param; p.FlowControl != flow || p.RetryCount != 3 || p.RNRRetryCount != 2 {
				t.Errorf("request %+v", p)
			}
			if told.FlowControl == flow || told.RetryCount != 3 || told.RNRRetryCount != 6 {
				t.Errorf("reply %+v", told)
			}
			a, b := h.qp().Query(), asked.ID.QP().Query()
			if a.RetryCnt != 3 || b.RetryCnt != 3 || a.RNRRetry != 6 || b.RNRRetry != 2 {
				t.Errorf("retries %d %d, of RNRs %d %d", a.RetryCnt, b.RetryCnt, a.RNRRetry, b.RNRRetry)
			}
		})
	}
}

// A consumer gets the path MTU that it asks for, if the path to the peer and the port support it, else the largest that
// they do.
func TestPathMTU(t *testing.T) {
	for _, c := range []struct{ path, port, asked, want verbs.MTU }{
		{verbs.MTU1024, verbs.MTU4096, 0, verbs.MTU1024}, {verbs.MTU1024, verbs.MTU4096, verbs.MTU4096, verbs.MTU1024},
		{verbs.MTU1024, verbs.MTU4096, verbs.MTU512, verbs.MTU512}, {verbs.MTU4096, verbs.MTU2048, 0, verbs.MTU2048},
	} {
		pair(t, func(t *testing.T, n *network, host, target *node, _ *end) {
			host.m.cfg.PathMTU = func(netip.Addr) verbs.MTU { return c.path }
			host.m.attr.ActiveMTU = c.port
			h := host.prepare(target.addr)
			if err := h.id.Connect(verbs.ConnParam{PathMTU: c.asked}); err != nil {
				t.Fatal(err)
			}
			h.want(verbs.CMEstablished)
			req := n.sent(host.addr, mad.AttrREQ)[0].msg.(*mad.REQ)
			if got := h.qp().Query().PathMTU; req.PathMTU != c.want || got != c.want {
				t.Errorf("%+v: asked for %v, has %v", c, req.PathMTU, got)
			}
		})
	}
}

func TestREQLikeLinux(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		h := host.connect(target.addr)
		established(h, l)
		got := *n.sent(host.addr, mad.AttrREQ)[0].msg.(*mad.REQ)
		want := mad.REQ{ // 6.12-mtu9000/rdma-02-connect in mad/testdata/linux.txt
			ServiceID: mad.ServiceID(4420), ResponderResources: 128, RemoteResponse: 20, FlowControl: true,
			LocalResponse: 20, RetryCount: 7, PKey: 0xffff, PathMTU: verbs.MTU4096, RNRRetryCount: 7, MaxCMRetries: 15,
			Primary: mad.Path{LocalLID: 0xffff, RemoteLID: 0xffff, HopLimit: 64, ACKTimeout: 17},
		}
		// What has to differ.
		got.LocalCommID, got.LocalCAGUID, got.LocalQPN, got.StartingPSN = 0, 0, 0, 0
		got.Primary.LocalGID, got.Primary.RemoteGID, got.Primary.FlowLabel = verbs.GID{}, verbs.GID{}, 0
		got.PrivateData = [mad.REQPrivateSize]byte{}
		if got != want {
			t.Errorf("got\n%+v\nLinux\n%+v", got, want)
		}
		established(host.connect(target.addr), l)
		if reqs := n.sent(host.addr, mad.AttrREQ); reqs[0].tid == reqs[1].tid {
			t.Errorf("two connections with the transaction ID %#x", reqs[0].tid)
		}
	})
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
		if !errors.Is(ev.Err, ErrTimeout) || !errors.As(ev.Err, &op) || op.Peer.Addr() != nobody {
			t.Errorf("error %v", ev.Err)
		}
		if timeout := net.Error(nil); !errors.As(ev.Err, &timeout) || !timeout.Timeout() {
			t.Errorf("%v isn't a timeout", ev.Err)
		}
		if got := ev.Err.Error(); !strings.Contains(got, "connect to 127.0.0.99:4420: no answer to 20 tries") {
			t.Errorf("error text %q", got)
		}
		reqs := n.sent(host.addr, mad.AttrREQ)
		if got, want := offsets(t, reqs), slices.Concat(earlyOffsets, every(4608*time.Millisecond, 15)); !slices.Equal(got, want) {
			t.Errorf("REQs at %v, want %v", got, want)
		}
		for _, again := range reqs {
			if *again.msg.(*mad.REQ) != *reqs[0].msg.(*mad.REQ) {
				t.Errorf("REQ %+v, want the first again", again.msg)
			}
		}
		rej := n.sent(host.addr, mad.AttrREJ)[0].msg.(*mad.REJ)
		if rej.Reason != verbs.RejectTimeout || rej.Local != reqs[0].msg.(*mad.REQ).LocalCommID ||
			rej.InfoLength != 8 || rej.GUID() != host.dev.attr.NodeGUID {
			t.Errorf("REJ %+v", rej)
		}
		host.wantEmpty()
	})
}

// TestTimesOfEach: requests are repeated at their own times, whatever others wait for.
func TestTimesOfEach(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		var ends []*end
		for i := range byte(3) {
			ends = append(ends, host.connect(netip.AddrFrom4([4]byte{127, 0, 0, 99 - i})))
			time.Sleep(time.Duration(i+1) * 130 * time.Millisecond)
		}
		for _, h := range ends {
			h.want(verbs.CMUnreachable)
			reqs := slices.DeleteFunc(n.sent(host.addr, mad.AttrREQ), func(w wired) bool { return w.dst != h.id.RemoteAddr().Addr() })
			if got, want := offsets(t, reqs), slices.Concat(earlyOffsets, every(4608*time.Millisecond, 15)); !slices.Equal(got, want) {
				t.Errorf("REQs to %v at %v, want %v", h.id.RemoteAddr(), got, want)
			}
		}
	})
}

// An address that the device can't send to fails at once.
func TestSendError(t *testing.T) {
	pair(t, func(t *testing.T, _ *network, host, target *node, _ *end) {
		h := host.prepare(target.addr)
		noRoute := errors.New("network is unreachable")
		host.dev.setSendErr(noRoute)
		if err := h.id.Connect(hostParam); err != nil {
			t.Fatal(err)
		}
		if ev := h.want(verbs.CMUnreachable); !errors.Is(ev.Err, noRoute) {
			t.Errorf("error %v", ev.Err)
		}
		host.wantEmpty() // it isn't tried again
	})
}

// A passive side whose REP is never answered gives up, sooner than the peer asked for, and tells the peer so.
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
		for range 7 { // three of them early
			if tid, rep := receive[*mad.REP](p); tid != 99 || rep.Remote != 7 {
				t.Errorf("TID %d, REP %+v", tid, rep.CommIDs)
			}
		}
		if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectTimeout {
			t.Errorf("reason %d", rej.Reason)
		}
		target.wantEmpty()
	})
}

// A REJ from a peer that gives up is accepted, although it doesn't know our ID.
func TestPeerGivesUp(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		l.handle = nil
		p := newRawPeer(t, n, "127.0.0.9")
		giveUp := func(commID uint32) {
			rej := &mad.REJ{CommIDs: mad.CommIDs{Local: commID}, Message: mad.AnswersOther, Reason: verbs.RejectTimeout}
			rej.SetGUID(0x77)
			p.send(target.addr, 99, rej)
		}
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		req := l.want(verbs.CMConnectRequest)
		giveUp(7)
		if ev := l.want(verbs.CMRejected); ev.ID != req.ID || ev.Reason != verbs.RejectTimeout {
			t.Errorf("%+v", ev)
		}
		wrongly(t, "disconnect", req.ID.Disconnect(), verbs.ErrState)
		wrongly(t, "reject", req.ID.Reject(nil), verbs.ErrState)
		qp := l.createQP(req.ID)
		wrongly(t, "accept", req.ID.Accept(acceptParam), verbs.ErrState)
		if st := qp.Query().State; st != verbs.Init {
			t.Errorf("state %v: it would take packets", st)
		}

		p.send(target.addr, 100, p.req(target.addr, 9, 10))
		req = l.want(verbs.CMConnectRequest)
		l.createQP(req.ID).pd.modify = func(verbs.QPState) error {
			giveUp(9)
			synctest.Wait()
			return nil
		}
		wrongly(t, "accept when it is too late", req.ID.Accept(acceptParam), verbs.ErrState)
		p.nothing()
	})
}

// A slow consumer: an MRA answers the repeated REQ when the response time is over, and the accept is still valid.
func TestSlowAccept(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		l.handle = nil
		h := host.connect(target.addr)
		l.id = l.want(verbs.CMConnectRequest).ID
		time.Sleep(30 * time.Second)
		if reqs, mras := n.sent(host.addr, mad.AttrREQ), n.sent(target.addr, mad.AttrMRA); len(reqs) != 5 || len(mras) != 1 {
			t.Fatalf("%d REQs, %d MRAs, want 5, 1", len(reqs), len(mras))
		} else if mra := mras[0].msg.(*mad.MRA); mra.Message != mad.AnswersREQ || mra.ServiceTimeout != 24 || mras[0].tid != reqs[0].tid {
			t.Errorf("MRA %+v", mra)
		}
		time.Sleep(60 * time.Second)
		if reqs := n.sent(host.addr, mad.AttrREQ); reqs[5].at.Sub(reqs[4].at) != 65536*time.Millisecond+512*time.Millisecond {
			t.Errorf("REQ again after %v", reqs[5].at.Sub(reqs[4].at))
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

// The REQ asks for the traffic class of the configuration, which both sides then use, and the REP says how long its
// device delays acknowledgements.
func TestTrafficClassAndACKDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const class = 26 << 2
		n := newNetwork()
		host, target := newNode(t, n, "127.0.0.2", Config{TrafficClass: class}), newNode(t, n, "127.0.0.1", Config{})
		defer host.m.Close()
		defer target.m.Close()
		target.m.attr.AckDelay = 19
		l := target.listen(0)
		h := host.connect(target.addr)
		established(h, l)
		req, rep := n.sent(host.addr, mad.AttrREQ)[0].msg.(*mad.REQ), n.sent(target.addr, mad.AttrREP)[0].msg.(*mad.REP)
		if a, b := h.qp().Query().TrafficClass, l.qp().Query().TrafficClass; req.Primary.TrafficClass != class || a != class || b != class {
			t.Errorf("traffic class %d asked for, %d and %d set", req.Primary.TrafficClass, a, b)
		}
		if got := h.qp().Query().Timeout; rep.TargetACKDelay != 19 || got != 19 {
			t.Errorf("ACK delay %d, ACK timeout %d", rep.TargetACKDelay, got)
		}
		ended(h, l)
	})
}

// The private data in the peer's RTU reaches the consumer.
func TestPrivateDataOfRTU(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, rep := receive[*mad.REP](p)
		rtu := &mad.RTU{CommIDs: rep.Reversed()}
		copy(rtu.PrivateData[:], "thanks")
		p.send(target.addr, 99, rtu)
		l.want(verbs.CMConnectRequest)
		if got := l.want(verbs.CMEstablished).Param.PrivateData; !bytes.Equal(got, rtu.PrivateData[:]) {
			t.Errorf("%q, want %q", got, rtu.PrivateData)
		}
	})
}

// An MRA to the REP keeps the passive side waiting as well.
func TestMRAofREP(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, rep := receive[*mad.REP](p)
		ids := mad.CommIDs{Local: 7, Remote: rep.Local}
		for range 2 {
			start := time.Now()
			p.send(target.addr, 99, &mad.MRA{CommIDs: ids, Message: mad.AnswersREP, ServiceTimeout: 20})
			receive[*mad.REP](p)
			if d := time.Since(start); d != codeDuration(20)+codeDuration(18) { // plus the way there and back
				t.Errorf("REP again after %v", d)
			}
		}
		p.send(target.addr, 99, &mad.MRA{CommIDs: ids, Message: mad.AnswersREQ, ServiceTimeout: 1})
		p.send(target.addr, 99, &mad.RTU{CommIDs: ids})
		l.want(verbs.CMConnectRequest)
		l.want(verbs.CMEstablished)
		if got := target.m.Counters().Dropped.Load(); got != 1 {
			t.Errorf("%d messages dropped, want the MRA of a REQ", got)
		}
	})
}

// However much time a peer's MRA asks for, either side gives up in time, and sends nothing more.
func TestMRAWithoutEnd(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		gaveUp := func(e *end, began time.Time, limit time.Duration) {
			t.Helper()
			e.want(verbs.CMUnreachable)
			if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectTimeout || time.Since(began) != limit {
				t.Errorf("reason %d after %v, want a timeout after %v", rej.Reason, time.Since(began), limit)
			}
			p.nothing()
		}
		began := time.Now()
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, rep := receive[*mad.REP](p)
		p.send(target.addr, 99, &mad.MRA{CommIDs: mad.CommIDs{Local: 7, Remote: rep.Local}, Message: mad.AnswersREP, ServiceTimeout: 31})
		l.want(verbs.CMConnectRequest)
		gaveUp(l, began, maxHalfOpenTime)

		began = time.Now()
		h := host.connect(p.addr)
		tid, req := receive[*mad.REQ](p)
		p.send(host.addr, tid, &mad.MRA{CommIDs: mad.CommIDs{Remote: req.LocalCommID}, Message: mad.AnswersREQ, ServiceTimeout: 31})
		gaveUp(h, began, (maxCMRetries+1)*reqInterval+maxService)
	})
}

// A REP that is taken back before it was looked at leaves the QP as it was.
func TestREPTakenBack(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		h := host.connect(p.addr)
		tid, req := receive[*mad.REQ](p)
		release := host.busy()
		ids := mad.CommIDs{Local: 5, Remote: req.LocalCommID}
		p.send(host.addr, tid, &mad.REP{CommIDs: ids, LocalQPN: 6, LocalCAGUID: 0x77})
		p.send(host.addr, tid, &mad.REJ{CommIDs: ids, Message: mad.AnswersOther, Reason: verbs.RejectTimeout})
		release()
		h.want(verbs.CMRejected)
		if st := h.qp().Query().State; st != verbs.Init {
			t.Errorf("state %v", st)
		}
		p.nothing()
	})
}

// A peer that ends the connection directly after its REP, before that was looked at: there is nothing to confirm.
func TestDREQBehindREP(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		h := host.connect(p.addr)
		tid, req := receive[*mad.REQ](p)
		release := host.busy()
		ids := mad.CommIDs{Local: 5, Remote: req.LocalCommID}
		p.send(host.addr, tid, &mad.REP{CommIDs: ids, LocalQPN: 6, LocalCAGUID: 0x77})
		p.send(host.addr, 100, &mad.DREQ{CommIDs: ids, RemoteQPN: req.LocalQPN})
		release()
		h.want(verbs.CMDisconnected)
		if st := h.qp().Query().State; st != verbs.Init {
			t.Errorf("state %v", st)
		}
		p.nothing()
		if err := h.id.Disconnect(); err != nil {
			t.Error(err)
		}
		if tid, drep := receive[*mad.DREP](p); tid != 100 || drep.CommIDs != ids.Reversed() {
			t.Errorf("TID %d %+v", tid, drep.CommIDs)
		}
		h.want(verbs.CMTimewaitExit)
	})
}

// The ACK timeout of the active side follows from the acknowledgement delay that the peer declares, within bounds.
func TestACKDelayOfREP(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		for i, c := range []struct{ delay, timeout uint8 }{{15, 17}, {19, 19}, {31, maxACKTimeout}} {
			h := host.connect(p.addr)
			tid, req := receive[*mad.REQ](p)
			p.send(host.addr, tid, &mad.REP{
				CommIDs: mad.CommIDs{Local: uint32(i + 1), Remote: req.LocalCommID}, LocalQPN: uint32(i + 2), TargetACKDelay: c.delay,
			})
			h.want(verbs.CMEstablished)
			receive[*mad.RTU](p)
			if got := h.qp().Query().Timeout; got != c.timeout {
				t.Errorf("ACK delay %d: timeout %d, want %d", c.delay, got, c.timeout)
			}
		}
	})
}

// The ACK timeout of the passive side is the one that the REQ asks for, within bounds; 0, which would be forever,
// leaves it to us.
func TestACKTimeoutOfREQ(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		for asked, want := range map[uint8]uint8{0: 17, 1: minACKTimeout, 14: 14, 19: 19, 21: maxACKTimeout, 31: maxACKTimeout} {
			req := p.req(target.addr, uint32(asked+1), uint32(asked+2))
			req.Primary.ACKTimeout = asked
			p.send(target.addr, 99, req)
			receive[*mad.REP](p)
			if got := l.want(verbs.CMConnectRequest).ID.QP().Query().Timeout; got != want {
				t.Errorf("ACK timeout %d: %d, want %d", asked, got, want)
			}
		}
	})
}

// READ counts beyond what the device supports are neither offered nor asked for.
func TestReadsOfTheDevice(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		if err := host.prepare(p.addr).id.Connect(verbs.ConnParam{ResponderResources: 255, InitiatorDepth: 255}); err != nil {
			t.Fatal(err)
		}
		_, req := receive[*mad.REQ](p)
		if a := host.dev.attr; int(req.ResponderResources) != a.MaxQPRdAtom || int(req.InitiatorDepth) != a.MaxQPInitAtom {
			t.Errorf("%d and %d READs, the device has %d and %d", req.ResponderResources, req.InitiatorDepth, a.MaxQPRdAtom, a.MaxQPInitAtom)
		}
	})
}

// Neither side has more READs outstanding than the other serves, or than its consumer wants, whatever the other says.
func TestReadsOfThePeer(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		for i, c := range []struct{ serves, want uint8 }{{4, 4}, {255, 16}} {
			h := host.prepare(p.addr)
			if err := h.id.Connect(verbs.ConnParam{InitiatorDepth: 16}); err != nil {
				t.Fatal(err)
			}
			tid, req := receive[*mad.REQ](p)
			ids := mad.CommIDs{Local: uint32(5 + i), Remote: req.LocalCommID}
			p.send(host.addr, tid, &mad.REP{CommIDs: ids, LocalQPN: uint32(6 + i), ResponderResources: c.serves})
			if got := h.want(verbs.CMEstablished).Param.InitiatorDepth; got != c.want || h.qp().Query().MaxRdAtomic != c.want {
				t.Errorf("%d READs, the queue pair has %d; want %d", got, h.qp().Query().MaxRdAtomic, c.want)
			}
			receive[*mad.RTU](p)
		}

		req := p.req(target.addr, 7, 8) // it serves 16
		req.InitiatorDepth = acceptParam.ResponderResources + 1
		p.send(target.addr, 99, req)
		_, rep := receive[*mad.REP](p)
		got := l.want(verbs.CMConnectRequest).ID.QP().Query()
		if rep.InitiatorDepth != 16 || got.MaxRdAtomic != 16 {
			t.Errorf("%d READs, the queue pair has %d; want 16", rep.InitiatorDepth, got.MaxRdAtomic)
		}
		if want := acceptParam.ResponderResources; rep.ResponderResources != want || got.MaxDestRdAtomic != want {
			t.Errorf("%d READs of the peer, the queue pair serves %d; want %d", rep.ResponderResources, got.MaxDestRdAtomic, want)
		}
	})
}

// A peer that wants to READ may, if the consumer lets it; one that doesn't never may.
func TestPassiveAccess(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		const reads = verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
		for depth, want := range []verbs.Access{0, reads} {
			req := p.req(target.addr, uint32(7+depth), uint32(8+depth))
			req.InitiatorDepth = uint8(depth)
			p.send(target.addr, 99, req)
			receive[*mad.REP](p)
			if got := l.want(verbs.CMConnectRequest).ID.QP().(*fakeQP).access; got != want|verbs.AccessRemoteWrite {
				t.Errorf("initiator depth %d: access %b", depth, got)
			}
		}
	})
}

// The first packet on the QP substitutes for a lost RTU.
func TestCommEst(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		n.setFilter(first(mad.AttrRTU))
		h := host.prepare(target.addr)
		h.qp().handler(verbs.AsyncEvent{Type: verbs.EventCommEst, QP: h.qp()}) // from a consumer that has moved the QP itself
		if err := h.id.Connect(hostParam); err != nil {
			t.Fatal(err)
		}
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
		if got := len(n.sent(target.addr, mad.AttrREP)); got != 1 {
			t.Errorf("%d REPs", got)
		}
		ended(h, l)
	})
}

// IPv6, by the same path.
// TestIPv6: addresses of a link have zones, which say what this host calls the link, and aren't on the wire.
func TestIPv6(t *testing.T) {
	for _, c := range []struct{ host, target, to string }{
		{"2001:db8::2", "2001:db8::1", "2001:db8::1"},
		{"fe80::2%eth0", "fe80::1%enp1s0", "fe80::1%eth0"},
		{"fe80::2%eth0", "fe80::1%enp1s0", "fe80::1%7"},
	} {
		t.Run(c.to, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				host, target := newNode(t, n, c.host, Config{}), newNode(t, n, c.target, Config{})
				defer host.m.Close()
				defer target.m.Close()
				l := target.listen(0)
				h := host.connect(netip.MustParseAddr(c.to))
				established(h, l)
				if got := h.id.RemoteAddr().Addr().String(); got != c.to {
					t.Errorf("remote address %s, want %s", got, c.to)
				}
				ended(h, l)
			})
		})
	}
}
