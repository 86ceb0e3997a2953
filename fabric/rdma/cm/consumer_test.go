package cm

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

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
			receive[*mad.REP](p)
			l.want(verbs.CMConnectRequest).ID.Destroy()
			if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectConsumer || rej.Remote != 7 {
				t.Errorf("REJ %+v", rej)
			}
			l.wantNone()
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

// wrongly checks the error of a call.
func wrongly(t *testing.T, what string, err, want error) {
	t.Helper()
	var op *OpError
	if !errors.Is(err, want) || !errors.As(err, &op) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// Calls that an identifier isn't in the state for, and addresses that can't be.
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
		for _, c := range []struct{ src, dst string }{{"127.0.0.3", "127.0.0.1:1"}, {"0.0.0.0", "[::1]:1"}} {
			if err := e.id.ResolveAddr(netip.MustParseAddr(c.src), netip.MustParseAddrPort(c.dst), 0); err != nil {
				t.Error(err)
			}
			wrongly(t, c.dst, e.want(verbs.CMAddrError).Err, ErrUnreachable)
		}
		wrongly(t, "listen elsewhere", e.id.Listen(netip.MustParseAddrPort("127.0.0.77:1"), 1), ErrUnreachable)
		wrongly(t, "port taken", target.newEnd().id.Listen(dst, 1), ErrAddrInUse)
		free := target.newEnd()
		if err := free.id.Listen(netip.AddrPort{}, 1); err != nil || free.id.LocalAddr().Port() < 49152 {
			t.Errorf("any port: %v %v", free.id.LocalAddr(), err)
		}
	})
	if _, err := New(newDevice(newNetwork(), "127.0.0.1"), Config{MaxHalfOpen: -1}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("config: %v", err)
	}
}

// The same while a connection is made.
func TestWrongCallsConnecting(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		h := host.prepare(target.addr)
		_, err := h.id.CreateQP(&fakePD{dev: host.dev}, verbs.QPInitAttr{Type: verbs.RC})
		wrongly(t, "second QP", err, verbs.ErrState)
		_, err = h.id.CreateQP(&fakePD{dev: host.dev}, verbs.QPInitAttr{Type: verbs.UD})
		wrongly(t, "UD", err, verbs.ErrInvalid)
		wrongly(t, "too much private data", h.id.Connect(verbs.ConnParam{PrivateData: make([]byte, 57)}), verbs.ErrInvalid)
		wrongly(t, "retry count", h.id.Connect(verbs.ConnParam{RetryCount: 8}), verbs.ErrInvalid)
		wrongly(t, "RNR retry count", h.id.Connect(verbs.ConnParam{RNRRetryCount: 8}), verbs.ErrInvalid)

		l.handle = func(ev verbs.CMEvent) {
			if ev.Type != verbs.CMConnectRequest {
				return
			}
			wrongly(t, "no QP", ev.ID.Accept(acceptParam), verbs.ErrState)
			wrongly(t, "disconnect", ev.ID.Disconnect(), verbs.ErrState)
			wrongly(t, "reject", ev.ID.Reject(make([]byte, 149)), verbs.ErrInvalid)
			l.createQP(ev.ID)
			wrongly(t, "accept", ev.ID.Accept(verbs.ConnParam{PrivateData: make([]byte, 197)}), verbs.ErrInvalid)
			if err := ev.ID.Accept(acceptParam); err != nil {
				t.Error(err)
			}
			wrongly(t, "accept again", ev.ID.Accept(acceptParam), verbs.ErrState)
			wrongly(t, "reject after accept", ev.ID.Reject(nil), verbs.ErrState)
		}
		if err := h.id.Connect(hostParam); err != nil {
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
