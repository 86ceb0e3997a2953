package cm

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// A REJ that is lost comes again as the answer to the repeated REQ.
func TestLostREJ(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		l.handle = func(ev verbs.CMEvent) {
			if ev.Type == verbs.CMConnectRequest {
				_ = ev.ID.Reject([]byte{7})
				_ = ev.ID.Destroy()
			}
		}
		n.setFilter(first(mad.AttrREJ))
		h := host.connect(target.addr)
		if ev := h.want(verbs.CMRejected); ev.Reason != verbs.RejectConsumer || ev.Param.PrivateData[0] != 7 {
			t.Errorf("reason %d, % x", ev.Reason, ev.Param.PrivateData[:1])
		}
		if got := len(n.sent(target.addr, mad.AttrREJ)); got != 2 {
			t.Errorf("%d REJs, want 2", got)
		}
		h.wantNone()
	})
}

// A connection that ends before its RTU has come is over for the peer too, if the RTU and the first REJ are lost: also if
// all of the target ends.
func TestLostREJAndRTU(t *testing.T) {
	for name, finish := range map[string]func(*node, verbs.CMID){
		"disconnect": func(_ *node, id verbs.CMID) { _ = id.Disconnect() },
		"close":      func(target *node, _ verbs.CMID) { _ = target.m.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
				rej := first(mad.AttrREJ)
				n.setFilter(func(w wired) []time.Duration {
					if w.msg.AttributeID() == mad.AttrRTU {
						return nil
					}
					return rej(w)
				})
				h := host.connect(target.addr)
				request := l.want(verbs.CMConnectRequest)
				h.want(verbs.CMEstablished)
				start := time.Now()
				finish(target, request.ID)
				h.want(verbs.CMDisconnected)
				if took, timewait := time.Since(start), 512*time.Millisecond; took >= timewait {
					t.Errorf("took %v, want less than TIMEWAIT, %v", took, timewait)
				}
				time.Sleep(time.Minute)
				if got := len(n.sent(target.addr, mad.AttrREJ)); got != 1+rejRetries {
					t.Errorf("%d REJs, want %d", got, 1+rejRetries)
				}
			})
		})
	}
}

// A REJ that comes twice is one event.
func TestRepeatedREJ(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		l.handle = func(ev verbs.CMEvent) {
			if ev.Type == verbs.CMConnectRequest {
				_ = ev.ID.Reject(nil)
				_ = ev.ID.Destroy()
			}
		}
		n.setFilter(first(mad.AttrREJ, 0, time.Nanosecond, time.Second))
		h := host.connect(target.addr)
		h.want(verbs.CMRejected)
		time.Sleep(time.Minute)
		h.wantNone()
	})
}

// An MRA that is lost costs nothing: the next REQ is answered with another one.
func TestLostMRA(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		l.handle = nil
		n.setFilter(first(mad.AttrMRA))
		h := host.connect(target.addr)
		req := l.want(verbs.CMConnectRequest)
		time.Sleep(10 * time.Second) // two repetitions of the REQ
		if got := len(n.sent(target.addr, mad.AttrMRA)); got < 2 {
			t.Errorf("%d MRAs, want 2", got)
		}
		l.createQP(req.ID)
		if err := req.ID.Accept(acceptParam); err != nil {
			t.Fatal(err)
		}
		h.want(verbs.CMEstablished)
		l.want(verbs.CMEstablished)
	})
}

// Two nodes that connect to each other at once have two connections.
func TestCrossedREQs(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		n.setFilter(func(wired) []time.Duration { return []time.Duration{time.Millisecond} })
		k := host.listen(0)
		a, b := host.connect(target.addr), target.connect(host.addr)
		established(a, l)
		established(b, k)
		for _, ends := range [][2]*end{{a, l}, {l, a}, {b, k}, {k, b}} {
			if got, want := ends[0].qp().Query().DestQPN, ends[1].qp().num; got != want {
				t.Errorf("connected to QP %#x, want %#x", got, want)
			}
		}
		ended(a, l)
		ended(b, k)
	})
}

// The active side gives up while the REP is in flight: the REJ ends the connection that exists on the passive side, and
// the REP finds no connection.
func TestREJCrossesREP(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, rep := receive[*mad.REP](p)
		l.id = l.want(verbs.CMConnectRequest).ID
		rej := &mad.REJ{CommIDs: mad.CommIDs{Local: 7}, Message: mad.AnswersOther, Reason: verbs.RejectTimeout}
		rej.SetGUID(0x77)
		p.send(target.addr, 99, rej)
		if ev := l.want(verbs.CMRejected); ev.Reason != verbs.RejectTimeout {
			t.Errorf("reason %d", ev.Reason)
		}
		// An RTU after it is too late: it has no effect.
		p.send(target.addr, 99, &mad.RTU{CommIDs: mad.CommIDs{Local: 7, Remote: rep.Local}})
		time.Sleep(time.Minute)
		l.wantNone()
	})
}

// A DREQ that overtakes the RTU ends the connection; the RTU after it has no effect.
func TestDREQOvertakesRTU(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		n.setFilter(first(mad.AttrRTU, 10*time.Millisecond))
		h := host.connect(target.addr)
		h.want(verbs.CMEstablished)
		if err := h.id.Disconnect(); err != nil {
			t.Error(err)
		}
		l.id = l.want(verbs.CMConnectRequest).ID
		l.want(verbs.CMDisconnected)
		if err := l.id.Disconnect(); err != nil {
			t.Error(err)
		}
		h.want(verbs.CMDisconnected)
		h.want(verbs.CMTimewaitExit)
		l.want(verbs.CMTimewaitExit)
		time.Sleep(time.Minute)
		h.wantNone()
		l.wantNone()
	})
}

// Every message of a connection that ended long ago is sent once more: requests are answered that there is no such
// connection, other messages get no answer, and no event is delivered.
func TestStaleMessages(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, rep := receive[*mad.REP](p)
		ids := mad.CommIDs{Local: 7, Remote: rep.Local}
		p.send(target.addr, 99, &mad.RTU{CommIDs: ids})
		l.id = l.want(verbs.CMConnectRequest).ID
		l.want(verbs.CMEstablished)
		p.send(target.addr, 100, &mad.DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN})
		l.want(verbs.CMDisconnected)
		_ = l.id.Disconnect()
		receive[*mad.DREP](p)
		l.want(verbs.CMTimewaitExit)
		_ = l.id.Destroy()

		for _, m := range []mad.Message{
			&mad.MRA{CommIDs: ids, Message: mad.AnswersREP}, &mad.RTU{CommIDs: ids}, &mad.DREP{CommIDs: ids},
			&mad.REJ{CommIDs: ids, Message: mad.AnswersREP, Reason: verbs.RejectTimeout},
		} {
			p.send(target.addr, 99, m)
			synctest.Wait()
			p.nothing()
		}
		p.send(target.addr, 99, &mad.REP{CommIDs: ids, LocalQPN: 8})
		if _, rej := receive[*mad.REJ](p); rej.Reason != rejectInvalidCommID || rej.Message != mad.AnswersREP {
			t.Errorf("a REP is answered by %+v", rej)
		}
		p.send(target.addr, 100, &mad.DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN})
		if tid, drep := receive[*mad.DREP](p); tid != 100 || drep.CommIDs != (mad.CommIDs{Local: rep.Local, Remote: 7}) {
			t.Errorf("a DREQ is answered by %d %+v", tid, drep.CommIDs)
		}
		l.wantNone()
		target.wantEmpty()
	})
}
