package roce

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestLastAnswerLeaves: a consumer that ends its queue pair as soon as it sees a message, in the
// handler that tells of it, doesn't leave the peer without the acknowledgement.
func TestLastAnswerLeaves(t *testing.T) {
	for name, end := range map[string]func(*Device, verbs.QP){
		"destroy": func(_ *Device, q verbs.QP) { _ = q.Destroy() },
		"reset":   func(_ *Device, q verbs.QP) { _ = q.Modify(verbs.QPAttr{State: verbs.Reset}) },
		"error":   func(_ *Device, q verbs.QP) { _ = q.Modify(verbs.QPAttr{State: verbs.Err}) },
		"close": func(d *Device, _ verbs.QP) {
			go d.Close() // not from a handler: it waits for the engine's end
			time.Sleep(time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, pairConfig{})
				a, b := p.a, p.b
				var q verbs.QP
				c, err := b.dev.CreateCQ(8, func(verbs.CQ) { end(b.dev, q) })
				check(t, err)
				q, err = b.pd.CreateQP(verbs.QPInitAttr{
					Type: verbs.RC, SendCQ: c, RecvCQ: c, MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1,
				})
				check(t, err)
				a.qp, b.qp = a.newQP(p.cfg), q
				p.connect(a, b)
				c.ReqNotify()
				b.recv(1, b.sge(0, 4000)...)
				a.post(verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: a.sge(0, 4000)})
				a.want(2, verbs.WCSuccess)
				time.Sleep(time.Second) // until Close has returned
			})
		})
	}
}
