package cm

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// rush is a group of peers that ask for connections at once.
type rush struct {
	net     *network
	eager   bool // they confirm as soon as they are accepted
	reps    []wired
	refused []verbs.RejectReason
}

// join adds one that listens at addr.
func (r *rush) join(addr netip.Addr) {
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	r.net.ports[addr] = func(src netip.Addr, b []byte) { // in the sender's context
		tid, msg, _ := mad.Parse(b)
		switch msg := msg.(type) {
		case *mad.REP:
			r.reps = append(r.reps, wired{src: addr, dst: src, tid: tid, msg: msg})
			if r.eager {
				r.confirm(r.reps[len(r.reps)-1])
			}
		case *mad.REJ:
			r.refused = append(r.refused, msg.Reason)
		}
	}
}

func (r *rush) confirm(w wired) {
	r.net.send(w.src, w.dst, mad.Append(nil, w.tid, &mad.RTU{CommIDs: w.msg.(*mad.REP).Reversed()}))
}

// Hosts, or the queues of one, that all connect at once while a target does something else are all accepted at once:
// the target answers each before it looks at the next. Either none confirms before all have been answered, or each does
// as soon as it is, and leaves its place to others.
func TestAllAtOnce(t *testing.T) {
	for _, c := range []struct {
		name              string
		asking, addresses int
		eager             bool
	}{
		{"500 hosts", 500, 500, false},
		{"250 queues of a host", 250, 1, false},
		{"1000 hosts that confirm", 1000, 1000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				target := newNode(t, n, "127.0.0.1", Config{})
				defer target.m.Close()
				l := target.listen(0)
				l.events = make(chan verbs.CMEvent, 4*c.asking)
				all := &rush{net: n, eager: c.eager}
				release := target.busy()
				for k := range c.asking {
					at := k % c.addresses
					p := &rawPeer{net: n, addr: netip.AddrFrom4([4]byte{10, 0, byte(at >> 8), byte(at)})}
					all.join(p.addr)
					p.send(target.addr, uint64(k), p.req(target.addr, uint32(k+1), uint32(k+2)))
				}
				release()
				synctest.Wait()
				if len(all.reps) != c.asking || len(all.refused) != 0 {
					t.Errorf("%d of %d accepted, refused for %v", len(all.reps), c.asking, all.refused)
				}
				if !c.eager {
					for _, w := range all.reps {
						all.confirm(w)
					}
					synctest.Wait()
				}
				if got := target.m.Counters().Accepts.Load(); got != uint64(c.asking) {
					t.Errorf("%d established, want %d", got, c.asking)
				}
			})
		})
	}
}

// Messages that don't name a connection keep their order: a peer that takes a request back before it was looked at has
// no connection.
func TestTakenBackInOrder(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		release := target.busy()
		req := p.req(target.addr, 7, 8)
		p.send(target.addr, 99, req)
		rej := &mad.REJ{CommIDs: mad.CommIDs{Local: 7}, Message: mad.AnswersOther, Reason: verbs.RejectTimeout}
		rej.SetGUID(req.LocalCAGUID)
		p.send(target.addr, 99, rej)
		release()
		l.want(verbs.CMConnectRequest)
		l.want(verbs.CMRejected)
		synctest.Wait()
		target.wantEmpty()
	})
}
