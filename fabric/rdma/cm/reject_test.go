package cm

import (
	"bytes"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

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
		rej := n.sent(target.addr, mad.AttrREJ)[0]
		if rej.msg.(*mad.REJ).Local != 0 || rej.tid != n.sent(host.addr, mad.AttrREQ)[0].tid {
			t.Errorf("REJ %x %+v", rej.tid, rej.msg.(*mad.REJ).CommIDs)
		}
		if got := host.m.Counters().RejectsReceived.Of(verbs.RejectConsumer).Load(); got != 1 {
			t.Errorf("counted %d", got)
		}
	})
}

// A refusal names the connection, if an MRA has told the peer its ID.
func TestRejectAfterMRA(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		l.handle = nil
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		id := l.want(verbs.CMConnectRequest).ID
		time.Sleep(5 * time.Second)
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, mra := receive[*mad.MRA](p)
		if err := id.Reject(nil); err != nil {
			t.Error(err)
		}
		if _, rej := receive[*mad.REJ](p); rej.CommIDs != mra.CommIDs || rej.Remote != 7 {
			t.Errorf("REJ of %+v, MRA of %+v", rej.CommIDs, mra.CommIDs)
		}
	})
}

// Why a REQ is refused, and how.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*mad.REQ)
		want   verbs.RejectReason
	}{
		{"other port", func(r *mad.REQ) { r.ServiceID++ }, verbs.RejectInvalidServiceID},
		{"other port space", func(r *mad.REQ) { r.ServiceID = 0x0111<<16 | 4420 }, verbs.RejectInvalidServiceID},
		{"transport type", func(r *mad.REQ) { r.TransportType = 1 }, rejectInvalidTransport},
		{"remote GID", func(r *mad.REQ) { r.Primary.RemoteGID[15]++ }, verbs.RejectInvalidGID},
		{"local GID", func(r *mad.REQ) { r.Primary.LocalGID[15]++ }, verbs.RejectConsumer},
		{"header version", func(r *mad.REQ) { r.PrivateData[0] = 1 }, verbs.RejectConsumer},
		{"header IP version", func(r *mad.REQ) { r.PrivateData[1] = 0x60 }, verbs.RejectConsumer},
		{"header source", func(r *mad.REQ) { r.PrivateData[19]++ }, verbs.RejectConsumer},
		{"header destination", func(r *mad.REQ) { r.PrivateData[35]++ }, verbs.RejectConsumer},
		{"P_Key", func(r *mad.REQ) { r.PKey = 0x1234 }, verbs.RejectUnsupported},
		{"MTU 0", func(r *mad.REQ) { r.PathMTU = 0 }, verbs.RejectInvalidMTU},
		{"MTU 6", func(r *mad.REQ) { r.PathMTU = 6 }, verbs.RejectInvalidMTU},
		{"MTU too large", func(r *mad.REQ) { r.PathMTU = verbs.MTU4096 }, verbs.RejectInvalidMTU},
		{"MTU too large for the way", func(r *mad.REQ) { r.PathMTU = verbs.MTU2048 }, verbs.RejectInvalidMTU},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
				target.m.attr.ActiveMTU = verbs.MTU2048
				target.m.cfg.PathMTU = func(netip.Addr) verbs.MTU { return verbs.MTU1024 }
				p := newRawPeer(t, n, "127.0.0.9")
				req := p.req(target.addr, 7, 8)
				c.change(req)
				p.send(target.addr, 99, req)
				tid, rej := receive[*mad.REJ](p)
				if tid != 99 || rej.CommIDs != (mad.CommIDs{Remote: 7}) || rej.Message != mad.AnswersREQ || rej.Reason != c.want {
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
			if tid, rej := receive[*mad.REJ](p); tid != i || rej.Reason != verbs.RejectNoResources {
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
			receive[*mad.REP](p)
		}
		ask(5)
		ask(6)
		ask(7)
		refused(7) // five half-open
		l.want(verbs.CMConnectRequest).ID.Reject(nil)
		receive[*mad.REJ](p)
		ask(8)
		l.want(verbs.CMConnectRequest)
		l.want(verbs.CMConnectRequest)
		l.wantNone()
		if got := target.m.Counters().HalfOpen.Load(); got != 5 {
			t.Errorf("%d half-open", got)
		}
	})
}

// The box for MADs is bounded: while a handler runs, a flood is dropped, not queued, and leaves room for others.
func TestFlood(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		l.handle = func(ev verbs.CMEvent) {
			if ev.Type != verbs.CMConnectRequest {
				return
			}
			p := make([]byte, mad.Size)
			for range 2 * boxSize {
				target.m.arrived(ev.ID.RemoteAddr().Addr(), p)
			}
			for range boxSize / 4 {
				target.m.arrived(netip.MustParseAddr("127.0.0.8"), p)
			}
		}
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		l.want(verbs.CMConnectRequest)
		synctest.Wait()
		c := target.m.Counters()
		if c.Overruns.Load() != 2*boxSize-boxSize/2 || c.Malformed.Load() != boxSize/2+boxSize/4 {
			t.Errorf("overruns %d, malformed %d", c.Overruns.Load(), c.Malformed.Load())
		}
	})
}
