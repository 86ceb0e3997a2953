package cm

import (
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Who sends from a peer's address, and knows one of the numbers of its connection, can't end it:
// neither half open nor when it stands.
func TestForgedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		target := newNode(t, n, "127.0.0.1", Config{})
		defer target.m.Close()
		l := target.listen(10)
		p := newRawPeer(t, n, "127.0.0.8")
		p.send(target.addr, 1, p.req(target.addr, 7, 100))
		_, rep := receive[*REP](p)
		l.want(verbs.CMConnectRequest)
		forge := func() {
			t.Helper()
			for _, ids := range []CommIDs{{8, rep.Local}, {0, rep.Local}, {7, rep.Local + 1}, {7, 0}} {
				for _, m := range []Message{
					&REJ{CommIDs: ids, Message: AnswersREQ, Reason: verbs.RejectConsumer},
					&REJ{CommIDs: ids, Message: AnswersREP, Reason: verbs.RejectStale},
					&REJ{CommIDs: ids, Message: AnswersOther, Reason: verbs.RejectTimeout}, // of another GUID
					&DREQ{CommIDs: ids, RemoteQPN: rep.LocalQPN}, &DREP{CommIDs: ids},
				} {
					p.send(target.addr, 2, m)
				}
			}
			again := p.req(target.addr, 9, 100) // a stale connection's, of another GUID
			again.LocalCAGUID++
			p.send(target.addr, 3, again)
			synctest.Wait()
			n.forget(p)
		}
		forge()
		l.want(verbs.CMConnectRequest) // the other GUID's
		p.send(target.addr, 1, &RTU{CommIDs: CommIDs{7, rep.Local}})
		l.want(verbs.CMEstablished)
		forge()
		p.send(target.addr, 4, &DREQ{CommIDs: CommIDs{7, rep.Local}, RemoteQPN: rep.LocalQPN + 1})
		synctest.Wait()
		p.nothing()
		p.send(target.addr, 5, &REJ{CommIDs: CommIDs{7, rep.Local}, Message: AnswersOther, Reason: verbs.RejectConsumer})
		l.want(verbs.CMDisconnected)
	})
}
