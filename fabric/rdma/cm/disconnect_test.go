package cm

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

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

// A DREQ is repeated after the time in which, according to the REQ, the peer would have answered, and after half a
// second at the latest.
func TestDREQInterval(t *testing.T) {
	for code, interval := range map[uint8]time.Duration{14: 64 * time.Millisecond, 16: 256 * time.Millisecond, 20: dreqInterval} {
		pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
			p := newRawPeer(t, n, "127.0.0.9")
			req := p.req(target.addr, 7, 8)
			req.LocalResponse = code
			p.send(target.addr, 99, req)
			_, rep := receive[*mad.REP](p)
			p.send(target.addr, 99, &mad.RTU{CommIDs: rep.Reversed()})
			l.id = l.want(verbs.CMConnectRequest).ID
			l.want(verbs.CMEstablished)
			if err := l.id.Disconnect(); err != nil {
				t.Error(err)
			}
			l.want(verbs.CMDisconnected)
			want := append([]time.Duration{0}, every(interval, dreqRetries)...)
			if got := offsets(t, n.sent(target.addr, mad.AttrDREQ)); !slices.Equal(got, want) {
				t.Errorf("code %d: DREQs at %v, want %v", code, got, want)
			}
			l.want(verbs.CMTimewaitExit)
		})
	}
}

// A connection that existed for longer than setting it up may take ends like any other, from either side: a DREQ that
// is lost is repeated.
func TestDREQAfterAnHour(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		for _, passive := range []bool{false, true} {
			h := host.connect(target.addr)
			established(h, l)
			time.Sleep(time.Hour)
			n.setFilter(first(mad.AttrDREQ))
			began := time.Now()
			if passive {
				ended(&end{node: l.node, id: l.id, events: l.events}, h)
			} else {
				ended(h, l)
			}
			if took, want := time.Since(began), dreqInterval+512*time.Millisecond; took != want { // including TIMEWAIT
				t.Errorf("from the passive side %v: took %v, want %v", passive, took, want)
			}
		}
	})
}

func TestDREQChecks(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		_, rep := receive[*mad.REP](p)
		ids := mad.CommIDs{Local: 7, Remote: rep.Local}

		p.send(target.addr, 100, &mad.DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN + 1}) // another QP: dropped
		synctest.Wait()
		p.nothing()

		p.send(target.addr, 101, &mad.DREQ{CommIDs: mad.CommIDs{Local: 70, Remote: 80}, RemoteQPN: 1}) // unknown: answered
		if tid, drep := receive[*mad.DREP](p); tid != 101 || drep.CommIDs != (mad.CommIDs{Local: 80, Remote: 70}) {
			t.Errorf("TID %d %+v", tid, drep.CommIDs)
		}
		q := newRawPeer(t, n, "127.0.0.10") // a stranger who knows the IDs
		q.send(target.addr, 102, &mad.DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN})
		receive[*mad.DREP](q)
		l.want(verbs.CMConnectRequest)
		l.wantNone()

		// In REP_SENT, after the RTU was lost, it is a disconnect.
		p.send(target.addr, 103, &mad.DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN})
		l.id = l.want(verbs.CMDisconnected).ID
		p.send(target.addr, 103, &mad.DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN}) // no answer before the owner answers
		synctest.Wait()
		p.nothing()
		if err := l.id.Disconnect(); err != nil {
			t.Error(err)
		}
		if tid, drep := receive[*mad.DREP](p); tid != 103 || drep.CommIDs != (mad.CommIDs{Local: rep.Local, Remote: 7}) {
			t.Errorf("TID %d %+v", tid, drep.CommIDs)
		}
		p.send(target.addr, 103, &mad.DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN}) // the DREP was lost
		receive[*mad.DREP](p)
		l.want(verbs.CMTimewaitExit)
	})
}

// Disconnect before the RTU: a DREQ isn't allowed, so a REJ ends the connection.
func TestDisconnectInREPSent(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
		n.setFilter(func(w wired) []time.Duration {
			if w.msg.AttributeID() == mad.AttrRTU {
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
