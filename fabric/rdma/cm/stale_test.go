package cm

import (
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// A repeated REQ gets the same REP again, not a second connection.
func TestDuplicateREQ(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, one := receive[*mad.REP](p)
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		if _, two := receive[*mad.REP](p); *one != *two {
			t.Errorf("REPs differ")
		}
		p.send(target.addr, 99, &mad.RTU{CommIDs: mad.CommIDs{Local: 7, Remote: one.Local}})
		l.id = l.want(verbs.CMConnectRequest).ID
		l.want(verbs.CMEstablished)
		p.send(target.addr, 99, p.req(target.addr, 7, 8)) // ESTABLISHED: no answer
		synctest.Wait()
		p.nothing()
		if got := target.m.Counters().Duplicates.Load(); got != 2 {
			t.Errorf("%d duplicates counted, want 2", got)
		}
		p.send(target.addr, 100, &mad.DREQ{CommIDs: mad.CommIDs{Local: 7, Remote: one.Local}, RemoteQPN: one.LocalQPN})
		l.want(verbs.CMDisconnected)
		l.id.Disconnect()
		receive[*mad.DREP](p)
		p.send(target.addr, 99, p.req(target.addr, 7, 8)) // TIMEWAIT
		if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectStale {
			t.Errorf("reason %d", rej.Reason)
		}
	})
}

// A peer that comes back with the QPN of a live connection has lost that one.
func TestStaleREQ(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, rep := receive[*mad.REP](p)
		p.send(target.addr, 99, &mad.RTU{CommIDs: mad.CommIDs{Local: 7, Remote: rep.Local}})
		l.want(verbs.CMConnectRequest)
		l.want(verbs.CMEstablished)

		p.send(target.addr, 101, p.req(target.addr, 70, 8))
		if tid, rej := receive[*mad.REJ](p); tid != 101 || rej.Remote != 70 || rej.Reason != verbs.RejectStale {
			t.Errorf("TID %d %+v reason %d", tid, rej.CommIDs, rej.Reason)
		}
		tid, dreq := receive[*mad.DREQ](p)
		if dreq.CommIDs != (mad.CommIDs{Local: rep.Local, Remote: 7}) || dreq.RemoteQPN != 8 || tid == 99 || tid == 0 {
			t.Errorf("TID %d %+v", tid, dreq)
		}
		p.send(target.addr, tid, &mad.DREP{CommIDs: mad.CommIDs{Local: 7, Remote: rep.Local}})
		l.want(verbs.CMDisconnected)
		if got := target.m.Counters().StaleEvicted.Load(); got != 1 {
			t.Errorf("counted %d", got)
		}
		l.want(verbs.CMTimewaitExit)
		// Another host with the same numbers is no stale one.
		q := newRawPeer(t, n, "127.0.0.10")
		p.send(target.addr, 102, p.req(target.addr, 71, 8))
		receive[*mad.REP](p)
		q.send(target.addr, 102, q.req(target.addr, 71, 8))
		receive[*mad.REP](q)
	})
}

// The same from the active side: the REP names a QP that belongs to a live connection.
func TestStaleREP(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		a := host.connect(p.addr)
		tid, req := receive[*mad.REQ](p)
		rep := &mad.REP{CommIDs: mad.CommIDs{Local: 5, Remote: req.LocalCommID}, LocalQPN: 6, LocalCAGUID: 0x77}
		p.send(host.addr, tid, rep)
		a.want(verbs.CMEstablished)
		receive[*mad.RTU](p)

		b := host.connect(p.addr)
		tid, req = receive[*mad.REQ](p)
		rep.CommIDs = mad.CommIDs{Local: 50, Remote: req.LocalCommID}
		p.send(host.addr, tid, rep)
		if ev := b.want(verbs.CMRejected); ev.Reason != verbs.RejectStale {
			t.Errorf("reason %d", ev.Reason)
		}
		if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectStale || rej.Message != mad.AnswersREP {
			t.Errorf("REJ %+v", rej)
		}
		tid, dreq := receive[*mad.DREQ](p)
		p.send(host.addr, tid, &mad.DREP{CommIDs: dreq.Reversed()})
		a.want(verbs.CMDisconnected)
		a.want(verbs.CMTimewaitExit)
		host.wantEmpty()
	})
}

// engines makes two managers of one address. What peers send there goes to neither by itself: see to.
func engines(t *testing.T, n *network, addr string) (all [2]*node) {
	for i := range all {
		all[i] = newNode(t, n, addr, Config{Engines: len(all), Engine: i})
		t.Cleanup(func() { all[i].m.Close() })
	}
	Join([]*Manager{all[0].m, all[1].m})
	return all
}

// to sends a message that reaches the given manager of an address.
func (p *rawPeer) to(nd *node, tid uint64, m mad.Message) {
	nd.m.arrived(p.addr, mad.Append(nil, tid, m))
}

// The connection that a restarted peer has lost may be one of another manager at the address.
func TestStaleREQElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		p, target := newRawPeer(t, n, "127.0.0.9"), engines(t, n, "127.0.0.2")
		var l [2]*end
		for i, nd := range target {
			l[i] = nd.listen(0)
		}
		p.to(target[0], 99, p.req(target[0].addr, 7, 8))
		_, rep := receive[*mad.REP](p)
		p.to(target[0], 99, &mad.RTU{CommIDs: rep.Reversed()})
		l[0].want(verbs.CMConnectRequest)
		l[0].want(verbs.CMEstablished)

		p.to(target[1], 101, p.req(target[1].addr, 70, 8))
		if tid, rej := receive[*mad.REJ](p); tid != 101 || rej.Remote != 70 || rej.Reason != verbs.RejectStale {
			t.Errorf("TID %d %+v reason %d", tid, rej.CommIDs, rej.Reason)
		}
		tid, dreq := receive[*mad.DREQ](p)
		if dreq.CommIDs != (mad.CommIDs{Local: rep.Local, Remote: 7}) || dreq.RemoteQPN != 8 {
			t.Errorf("DREQ %+v of QP %d", dreq.CommIDs, dreq.RemoteQPN)
		}
		p.to(target[0], tid, &mad.DREP{CommIDs: dreq.Reversed()})
		l[0].want(verbs.CMDisconnected)

		p.to(target[1], 102, p.req(target[1].addr, 71, 8)) // the old one is in TIMEWAIT
		receive[*mad.REP](p)
		l[1].want(verbs.CMConnectRequest)
		p.to(target[0], 103, p.req(target[0].addr, 72, 9)) // another QP
		receive[*mad.REP](p)
	})
}

// The same from the active side.
func TestStaleREPElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		p, host := newRawPeer(t, n, "127.0.0.9"), engines(t, n, "127.0.0.1")
		a, b := host[0].connect(p.addr), host[1].prepare(p.addr)
		tid, req := receive[*mad.REQ](p)
		rep := &mad.REP{CommIDs: mad.CommIDs{Local: 5, Remote: req.LocalCommID}, LocalQPN: 6, LocalCAGUID: 0x77}
		p.to(host[0], tid, rep)
		a.want(verbs.CMEstablished)
		receive[*mad.RTU](p)

		if err := b.id.Connect(hostParam); err != nil {
			t.Fatal(err)
		}
		tid, req = receive[*mad.REQ](p)
		rep.CommIDs = mad.CommIDs{Local: 50, Remote: req.LocalCommID}
		p.to(host[1], tid, rep)
		if ev := b.want(verbs.CMRejected); ev.Reason != verbs.RejectStale {
			t.Errorf("reason %d", ev.Reason)
		}
		if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectStale || rej.Message != mad.AnswersREP {
			t.Errorf("REJ %+v", rej)
		}
		tid, dreq := receive[*mad.DREQ](p)
		p.to(host[0], tid, &mad.DREP{CommIDs: dreq.Reversed()})
		a.want(verbs.CMDisconnected)
	})
}

// A peer that uses the QPN of a connection that has ended for its next one, as RNICs that take the lowest free one do,
// is accepted at once: a request is stale only if its QPN is connected (IBTA 12.9.8.3.1), and in TIMEWAIT it isn't, as
// in Linux. Late messages of the old connection don't affect the new one.
func TestQPNOfEndedConnection(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		connect := func(id uint32) (ids mad.CommIDs, qpn uint32) {
			t.Helper()
			p.send(target.addr, uint64(id), p.req(target.addr, id, 8))
			_, rep := receive[*mad.REP](p)
			p.send(target.addr, uint64(id), &mad.RTU{CommIDs: rep.Reversed()})
			l.id = l.want(verbs.CMConnectRequest).ID
			l.want(verbs.CMEstablished)
			return rep.Reversed(), rep.LocalQPN
		}
		first, qpn := connect(7)
		p.send(target.addr, 100, &mad.DREQ{CommIDs: first, RemoteQPN: qpn})
		l.want(verbs.CMDisconnected)
		if err := l.id.Disconnect(); err != nil {
			t.Fatal(err)
		}
		receive[*mad.DREP](p)

		connect(70) // the peer has ended the previous one
		if err := l.id.Disconnect(); err != nil {
			t.Fatal(err)
		}
		tid, dreq := receive[*mad.DREQ](p)
		p.send(target.addr, tid, &mad.DREP{CommIDs: dreq.Reversed()})
		l.want(verbs.CMDisconnected)

		connect(700)                                                        // we have ended it
		p.send(target.addr, 100, &mad.DREQ{CommIDs: first, RemoteQPN: qpn}) // its DREP was lost
		receive[*mad.DREP](p)
		l.want(verbs.CMTimewaitExit)
		l.want(verbs.CMTimewaitExit)
		l.wantNone()

		p.send(target.addr, 7000, p.req(target.addr, 7000, 8)) // the QPN of the established one
		if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectStale {
			t.Errorf("reason %d", rej.Reason)
		}
		receive[*mad.DREQ](p)
	})
}

// The same from the active side: the REP names the QP of a connection that has ended.
func TestQPNOfEndedConnectionInREP(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		for id := range uint32(2) {
			h := host.connect(p.addr)
			tid, req := receive[*mad.REQ](p)
			ids := mad.CommIDs{Local: id + 5, Remote: req.LocalCommID}
			replied, rep := tid, &mad.REP{CommIDs: ids, LocalQPN: 6, LocalCAGUID: 0x77}
			p.send(host.addr, replied, rep)
			h.want(verbs.CMEstablished)
			receive[*mad.RTU](p)
			if err := h.id.Disconnect(); err != nil {
				t.Fatal(err)
			}
			tid, _ = receive[*mad.DREQ](p)
			p.send(host.addr, tid, &mad.DREP{CommIDs: ids})
			h.want(verbs.CMDisconnected)
			p.send(host.addr, replied, rep) // late: it claims nothing for the connection that is over
			synctest.Wait()
		}
	})
}

func TestUnknownREP(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(host.addr, 99, &mad.REP{CommIDs: mad.CommIDs{Local: 1, Remote: 2}})
		if tid, rej := receive[*mad.REJ](p); tid != 99 || rej.Remote != 1 || rej.Message != mad.AnswersREP || rej.Reason != rejectInvalidCommID {
			t.Errorf("TID %d %+v", tid, rej)
		}
	})
}

func TestSIDRAndOthers(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(host.addr, 99, &mad.SIDRREQ{RequestID: 3, ServiceID: 4})
		if tid, rep := receive[*mad.SIDRREP](p); tid != 99 || rep.RequestID != 3 || rep.ServiceID != 4 || rep.Status != mad.SIDRUnsupported {
			t.Errorf("TID %d %+v", tid, rep)
		}
		for _, m := range []mad.Message{new(mad.APR), new(mad.SIDRREP), new(mad.RTU), new(mad.DREP), new(mad.MRA), new(mad.REJ)} {
			p.send(host.addr, 99, m)
		}
		host.m.arrived(p.addr, make([]byte, mad.Size))
		synctest.Wait()
		p.nothing()
		c := host.m.Counters()
		if c.Dropped.Load() != 6 || c.Malformed.Load() != 1 {
			t.Errorf("dropped %d, malformed %d", c.Dropped.Load(), c.Malformed.Load())
		}
	})
}
