package cm

import (
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// An attacker that sends from a peer's address, and knows one of the numbers of its connection, can't end that
// connection, neither while it is half open nor when it is established.
func TestForgedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		target := newNode(t, n, "127.0.0.1", Config{})
		defer target.m.Close()
		l := target.listen(10)
		p := newRawPeer(t, n, "127.0.0.8")
		p.send(target.addr, 1, p.req(target.addr, 7, 100))
		_, rep := receive[*mad.REP](p)
		l.want(verbs.CMConnectRequest)
		forge := func() {
			t.Helper()
			for _, ids := range []mad.CommIDs{
				{Local: 8, Remote: rep.Local}, {Remote: rep.Local}, {Local: 7, Remote: rep.Local + 1}, {Local: 7},
			} {
				for _, m := range []mad.Message{
					&mad.REJ{CommIDs: ids, Message: mad.AnswersREQ, Reason: verbs.RejectConsumer},
					&mad.REJ{CommIDs: ids, Message: mad.AnswersREP, Reason: verbs.RejectStale},
					&mad.REJ{CommIDs: ids, Message: mad.AnswersOther, Reason: verbs.RejectTimeout}, // with another GUID
					&mad.DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN}, &mad.DREP{CommIDs: ids},
				} {
					p.send(target.addr, 2, m)
				}
			}
			again := p.req(target.addr, 9, 100) // of a stale connection, but with another GUID
			again.LocalCAGUID++
			p.send(target.addr, 3, again)
			synctest.Wait()
			n.forget(p)
		}
		forge()
		l.want(verbs.CMConnectRequest) // the other GUID's
		p.send(target.addr, 1, &mad.RTU{CommIDs: mad.CommIDs{Local: 7, Remote: rep.Local}})
		l.want(verbs.CMEstablished)
		forge()
		p.send(target.addr, 4, &mad.DREQ{CommIDs: mad.CommIDs{Local: 7, Remote: rep.Local}, RemoteQPN: rep.LocalQPN + 1})
		synctest.Wait()
		p.nothing()
		p.send(target.addr, 5, &mad.REJ{
			CommIDs: mad.CommIDs{Local: 7, Remote: rep.Local}, Message: mad.AnswersOther, Reason: verbs.RejectConsumer,
		})
		l.want(verbs.CMDisconnected)
	})
}
