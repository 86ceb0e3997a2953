package cm

import (
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Everything is done inside handlers, to the end.
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
			host.wantEmpty()
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
	t.Run("requested long ago", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
			l.handle = nil
			p := newRawPeer(t, n, "127.0.0.9")
			req := p.req(target.addr, 7, 8)
			p.send(target.addr, 99, req)
			id := l.want(verbs.CMConnectRequest).ID
			time.Sleep(codeDuration(req.RemoteResponse))
			p.send(target.addr, 99, req)
			_, mra := receive[*mad.MRA](p)
			id.Destroy()
			if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectConsumer || rej.CommIDs != mra.CommIDs {
				t.Errorf("REJ %+v", rej)
			}
			target.wantEmpty()
		})
	})
	t.Run("accepted", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
			p := newRawPeer(t, n, "127.0.0.9")
			p.send(target.addr, 99, p.req(target.addr, 7, 8))
			receive[*mad.REP](p)
			l.want(verbs.CMConnectRequest).ID.Destroy()
			if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectConsumer || rej.Remote != 7 || rej.Message != mad.AnswersOther {
				t.Errorf("REJ %+v", rej)
			}
			l.wantNone()
		})
	})
	t.Run("told to wait", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
			p := newRawPeer(t, n, "127.0.0.9")
			h := host.connect(p.addr)
			tid, req := receive[*mad.REQ](p)
			p.send(host.addr, tid, &mad.MRA{CommIDs: mad.CommIDs{Local: 5, Remote: req.LocalCommID}, Message: mad.AnswersREQ, ServiceTimeout: 20})
			synctest.Wait()
			h.id.Destroy()
			if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectTimeout || rej.Local != req.LocalCommID {
				t.Errorf("REJ %+v", rej)
			}
			host.wantEmpty()
		})
	})
	t.Run("replied", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
			p := newRawPeer(t, n, "127.0.0.9")
			h := host.connect(p.addr)
			h.qp().pd.modify = func(verbs.QPState) error { return h.id.Destroy() } // while its QP is moved
			tid, req := receive[*mad.REQ](p)
			ids := mad.CommIDs{Local: 5, Remote: req.LocalCommID}
			p.send(host.addr, tid, &mad.REP{CommIDs: ids, LocalQPN: 6, LocalCAGUID: 0x77})
			if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectConsumer || rej.CommIDs != ids.Reversed() || rej.Message != mad.AnswersREP {
				t.Errorf("REJ %+v", rej)
			}
			synctest.Wait()
			h.wantNone()
			host.wantEmpty()
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

// A connection outlives its owner until its peer has been told.
func TestDestroyEstablished(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		h := host.connect(target.addr)
		established(h, l)
		n.setFilter(first(mad.AttrDREQ)) // lost: the connection outlives its owner to send it again
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
}

// A request whose listener is destroyed before its handler ran is refused, not forgotten.
func TestListenerGoneBeforeRequest(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		release := target.busy()
		h := host.connect(target.addr)
		synctest.Wait()
		l.id.Destroy()
		release()
		if ev := h.want(verbs.CMRejected); ev.Reason != verbs.RejectInvalidServiceID {
			t.Errorf("reason %d", ev.Reason)
		}
		l.wantNone()
	})
}

// So is one that was already taken from the inbox.
func TestListenerGoneAtRequest(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		listener, accept := l.id, l.handle
		l.handle = func(ev verbs.CMEvent) {
			accept(ev)
			if ev.Type == verbs.CMEstablished {
				listener.Destroy()
			}
		}
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, rep := receive[*mad.REP](p)
		l.want(verbs.CMConnectRequest)
		release := target.busy()
		p.send(target.addr, 99, &mad.RTU{CommIDs: rep.Reversed()}) // overtakes the next request, which is handled before anybody is told of it
		second := host.connect(target.addr)
		synctest.Wait()
		release()
		l.want(verbs.CMEstablished)
		if ev := second.want(verbs.CMRejected); ev.Reason != verbs.RejectConsumer {
			t.Errorf("reason %d", ev.Reason)
		}
		l.wantNone()
	})
}

// Requests to a listener without a handler are refused: nobody would ever answer them.
func TestListenerWithoutHandler(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		l.id.Destroy()
		id, err := target.m.CreateID(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := id.Listen(netip.AddrPortFrom(target.addr, 4420), 1); err != nil {
			t.Fatal(err)
		}
		for range 2 { // more than it lets wait
			if ev := host.connect(target.addr).want(verbs.CMRejected); ev.Reason != verbs.RejectConsumer {
				t.Errorf("reason %d", ev.Reason)
			}
		}
		target.wantEmpty()
	})
}

// If a QP can't be moved the attempt fails, on either side.
func TestQPErrors(t *testing.T) {
	broken := errors.New("no such address")
	refuse := func(verbs.QPState) error { return broken }
	t.Run("active", func(t *testing.T) {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			h := host.prepare(target.addr)
			h.qp().pd.modify = refuse
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
				l.createQP(ev.ID).pd.modify = refuse
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

// wrongly checks the error of a call.
func wrongly(t *testing.T, what string, err, want error) {
	t.Helper()
	var op *OpError
	if !errors.Is(err, want) || !errors.As(err, &op) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// Calls in states that don't allow them, and invalid addresses.
func TestWrongCalls(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		dst := netip.AddrPortFrom(target.addr, 4420)
		e := host.newEnd()
		if e.id.Device() != nil || e.id.QP() != nil {
			t.Error("device or QP before ResolveAddr")
		}
		wrongly(t, "route first", e.id.ResolveRoute(0), verbs.ErrState)
		wrongly(t, "connect first", e.id.Connect(hostParam), verbs.ErrState)
		wrongly(t, "accept", e.id.Accept(hostParam), verbs.ErrState)
		wrongly(t, "reject", e.id.Reject(nil), verbs.ErrState)
		wrongly(t, "disconnect", e.id.Disconnect(), verbs.ErrState)
		_, err := e.id.CreateQP(&fakePD{dev: host.dev}, verbs.QPInitAttr{Type: verbs.RC})
		wrongly(t, "QP first", err, verbs.ErrState)
		for _, bad := range []string{"0.0.0.0:1", "224.0.0.1:1", "127.0.0.1:0"} {
			wrongly(t, bad, e.id.ResolveAddr(netip.Addr{}, netip.MustParseAddrPort(bad), 0), verbs.ErrInvalid)
		}
		wrongly(t, "no address", e.id.ResolveAddr(netip.Addr{}, netip.AddrPortFrom(netip.Addr{}, 1), 0), verbs.ErrInvalid)
		for _, c := range []struct{ src, dst string }{{"127.0.0.3", "127.0.0.1:1"}, {"0.0.0.0", "[::1]:1"}} {
			if err := e.id.ResolveAddr(netip.MustParseAddr(c.src), netip.MustParseAddrPort(c.dst), 0); err != nil {
				t.Error(err)
			}
			wrongly(t, c.dst, e.want(verbs.CMAddrError).Err, ErrUnreachable)
		}
		wrongly(t, "listen elsewhere", e.id.Listen(netip.MustParseAddrPort("127.0.0.77:1"), 1), ErrUnreachable)
		mapped := netip.AddrPortFrom(netip.AddrFrom16(dst.Addr().As16()), dst.Port())
		if err := e.id.ResolveAddr(netip.IPv4Unspecified(), mapped, 0); err != nil { // from any address
			t.Error(err)
		}
		e.want(verbs.CMAddrResolved)
		wrongly(t, "resolve again", e.id.ResolveAddr(netip.Addr{}, dst, 0), verbs.ErrState)
		wrongly(t, "listen again", l.id.Listen(dst, 1), verbs.ErrState)
		wrongly(t, "port taken", target.newEnd().id.Listen(dst, 1), ErrAddrInUse)
		free := target.newEnd()
		if err := free.id.Listen(netip.MustParseAddrPort("0.0.0.0:0"), 1); err != nil || free.id.LocalAddr().Port() < 49152 {
			t.Errorf("any port: %v %v", free.id.LocalAddr(), err)
		}
	})
	for _, c := range []Config{
		{MaxConnections: -1}, {MaxPerPeer: -1}, {MaxHalfOpen: -1}, {MaxHalfOpenPerPeer: -1},
		{Engines: -1}, {Engines: MaxEngines + 1}, {Engine: -1}, {Engine: 1}, {Engines: 2, Engine: 2},
	} {
		if err := c.Validate(); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := New(newDevice(newNetwork(), "127.0.0.1"), Config{MaxHalfOpen: -1}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("config: %v", err)
	}
}

// TestListenOnAnyPort: identifiers that leave the choice of the port to the manager get different ones, until there is
// none left. Once the search for one more never ended, and held the manager's lock.
func TestListenOnAnyPort(t *testing.T) {
	n := newNode(t, newNetwork(), "127.0.0.1", Config{})
	defer n.m.Close()
	ports := map[uint16]verbs.CMID{}
	listen := func() error {
		id, err := n.m.CreateID(nil)
		if err == nil {
			err = id.Listen(netip.AddrPort{}, 1)
		}
		if err == nil {
			ports[id.LocalAddr().Port()] = id
		}
		return err
	}
	for i := range ephemeralPorts {
		if err := listen(); err != nil || len(ports) != i+1 {
			t.Fatalf("listener %d: %d ports, %v", i, len(ports), err)
		}
	}
	wrongly(t, "one more", listen(), ErrAddrInUse)
	const freed = 50000
	if err := ports[freed].Destroy(); err != nil {
		t.Fatal(err)
	}
	delete(ports, freed)
	if err := listen(); err != nil || ports[freed] == nil {
		t.Errorf("port %d was freed: %v", freed, err)
	}
}

// Calls in states that don't allow them, while a connection is being established.
func TestWrongCallsConnecting(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		h := host.prepare(target.addr)
		_, err := h.id.CreateQP(&fakePD{dev: host.dev}, verbs.QPInitAttr{Type: verbs.RC})
		wrongly(t, "second QP", err, verbs.ErrState)
		_, err = h.id.CreateQP(&fakePD{dev: host.dev}, verbs.QPInitAttr{Type: verbs.UD})
		wrongly(t, "UD", err, verbs.ErrInvalid)
		bound := host.newEnd()
		if err := bound.id.ResolveAddr(netip.Addr{}, h.id.RemoteAddr(), 0); err != nil {
			t.Fatal(err)
		}
		for what, c := range map[string]struct {
			pd  verbs.PD
			say string
		}{"no PD": {nil, "no protection domain"}, "PD of another device": {&fakePD{dev: target.dev}, target.dev.attr.Name}} {
			_, err = bound.id.CreateQP(c.pd, verbs.QPInitAttr{Type: verbs.RC})
			wrongly(t, what, err, verbs.ErrInvalid)
			if !strings.Contains(err.Error(), c.say) {
				t.Errorf("%s: error %q, want %q in it", what, err, c.say)
			}
		}
		if err := bound.id.ResolveRoute(0); err != nil {
			t.Fatal(err)
		}
		wrongly(t, "connect without QP", bound.id.Connect(hostParam), verbs.ErrState)
		wrongly(t, "disconnect first", h.id.Disconnect(), verbs.ErrState)
		wrongly(t, "too much private data", h.id.Connect(verbs.ConnParam{PrivateData: make([]byte, 57)}), verbs.ErrInvalid)
		wrongly(t, "retry count", h.id.Connect(verbs.ConnParam{RetryCount: 8}), verbs.ErrInvalid)
		wrongly(t, "RNR retry count", h.id.Connect(verbs.ConnParam{RNRRetryCount: 8}), verbs.ErrInvalid)

		l.handle = func(ev verbs.CMEvent) {
			if ev.Type != verbs.CMConnectRequest {
				return
			}
			wrongly(t, "disconnect before the answer", h.id.Disconnect(), verbs.ErrState)
			if st := h.qp().Query().State; st != verbs.Init {
				t.Errorf("state %v before the answer", st)
			}
			wrongly(t, "no QP", ev.ID.Accept(acceptParam), verbs.ErrState)
			wrongly(t, "disconnect", ev.ID.Disconnect(), verbs.ErrState)
			wrongly(t, "reject", ev.ID.Reject(make([]byte, 149)), verbs.ErrInvalid)
			l.createQP(ev.ID).pd.modify = func(verbs.QPState) error {
				wrongly(t, "accept meanwhile", ev.ID.Accept(acceptParam), verbs.ErrState)
				wrongly(t, "reject meanwhile", ev.ID.Reject(nil), verbs.ErrState)
				return nil
			}
			wrongly(t, "accept", ev.ID.Accept(verbs.ConnParam{PrivateData: make([]byte, 197)}), verbs.ErrInvalid)
			if err := ev.ID.Accept(acceptParam); err != nil {
				t.Error(err)
			}
			wrongly(t, "accept again", ev.ID.Accept(acceptParam), verbs.ErrState)
			wrongly(t, "reject after accept", ev.ID.Reject(nil), verbs.ErrState)
		}
		if err := h.id.Connect(verbs.ConnParam{PrivateData: make([]byte, 56), RetryCount: 7, RNRRetryCount: 7}); err != nil {
			t.Fatal(err)
		}
		wrongly(t, "connect again", h.id.Connect(hostParam), verbs.ErrState)
		established(h, l)
		host.m.Close()
		_, err = host.m.CreateID(nil)
		wrongly(t, "closed", err, verbs.ErrClosed)
	})
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
		unused := host.newEnd()
		unused.handle = func(ev verbs.CMEvent) { // nothing new begins, although there still is an identifier
			dst := netip.AddrPortFrom(target.addr, 4420)
			wrongly(t, "resolve", ev.ID.ResolveAddr(netip.Addr{}, dst, 0), verbs.ErrClosed)
			wrongly(t, "listen", ev.ID.Listen(netip.AddrPortFrom(host.addr, 4420), 1), verbs.ErrClosed)
		}
		host.m.Close()
		host.m.Close()
		unused.want(verbs.CMDeviceRemoval)
		a.want(verbs.CMDeviceRemoval)
		b.want(verbs.CMDeviceRemoval)
		l.want(verbs.CMConnectRequest)
		l.want(verbs.CMEstablished)
		l.want(verbs.CMDisconnected)
		l.want(verbs.CMDisconnected)
		if host.dev.liveQPs() != 0 {
			t.Error("QPs left")
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.ports[host.addr] != nil {
			t.Error("the device is still listened to")
		}
	})
}

// Close waits for the answers to its DREQs, but no longer than a second.
func TestCloseLingers(t *testing.T) {
	for _, c := range []struct{ delay, took time.Duration }{{100 * time.Millisecond, 200 * time.Millisecond}, {time.Minute, lingerTime}} {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			l.handle = answering(l.handle)
			established(host.connect(target.addr), l)
			n.setFilter(func(wired) []time.Duration { return []time.Duration{c.delay} })
			began := time.Now()
			host.m.Close()
			if took := time.Since(began); took != c.took {
				t.Errorf("messages take %v: closed after %v, want %v", c.delay, took, c.took)
			}
		})
	}
}

// A DREQ that is lost is sent again while Close waits, so that the peer learns of the end.
func TestCloseAsksAgain(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		l.handle = answering(l.handle)
		h := host.connect(target.addr)
		established(h, l)
		lost := false
		n.setFilter(func(wired) []time.Duration {
			if !lost {
				lost = true
				return nil
			}
			return []time.Duration{time.Millisecond}
		})
		began := time.Now()
		host.m.Close()
		if took, want := time.Since(began), dreqInterval+2*time.Millisecond; took != want {
			t.Errorf("closed after %v, want %v", took, want)
		}
		l.want(verbs.CMDisconnected)
	})
}

// answering is handle, but also answers DREQs.
func answering(handle func(verbs.CMEvent)) func(verbs.CMEvent) {
	return func(ev verbs.CMEvent) {
		handle(ev)
		if ev.Type == verbs.CMDisconnected {
			_ = ev.ID.Disconnect()
		}
	}
}

// A QP that is created while its identifier is destroyed is destroyed as well.
func TestDestroyDuringCreateQP(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		e := host.newEnd()
		if err := e.id.ResolveAddr(netip.Addr{}, netip.AddrPortFrom(target.addr, 4420), 0); err != nil {
			t.Fatal(err)
		}
		pd := &fakePD{dev: host.dev, modify: func(verbs.QPState) error { return e.id.Destroy() }}
		_, err := e.id.CreateQP(pd, verbs.QPInitAttr{Type: verbs.RC})
		wrongly(t, "create QP", err, verbs.ErrClosed)
		if host.dev.liveQPs() != 0 {
			t.Error("QPs left")
		}
	})
}

// Close may be called while a consumer's call is busy with its QP.
func TestDisconnectDuringClose(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		h := host.connect(target.addr)
		established(h, l)
		n.setFilter(func(wired) []time.Duration { return nil })
		h.qp().pd.modify = func(verbs.QPState) error { return host.m.Close() }
		wrongly(t, "disconnect", h.id.Disconnect(), verbs.ErrClosed)
		host.wantEmpty()
	})
}

// TestDestroyAtOnce: when Destroy returns the QP is gone, even if another call is destroying it. Close may be that other
// one, and the consumer frees the memory that the QP sends from.
func TestDestroyAtOnce(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		h := host.connect(target.addr)
		established(h, l)
		var left atomic.Int32 // QPs, when the second call returns
		var second sync.WaitGroup
		h.qp().pd.destroy = func() {
			second.Go(func() {
				if err := h.id.Destroy(); err != nil {
					t.Error(err)
				}
				left.Store(int32(host.dev.liveQPs()))
			})
			for range 1000 { // it may return now, and must not
				runtime.Gosched()
			}
		}
		if err := h.id.Destroy(); err != nil {
			t.Error(err)
		}
		second.Wait()
		if n := left.Load(); n != 0 {
			t.Errorf("%d QPs are left when Destroy returns", n)
		}
	})
}
