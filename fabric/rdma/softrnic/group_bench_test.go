package softrnic

import (
	"fmt"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// BenchmarkEngines answers messages from 8 connections, each of which takes the consumer 20 µs, with one RNIC and with
// several at its address. What several gain is bounded by the processors, of which the host takes a part.
func BenchmarkEngines(b *testing.B) {
	for _, engines := range []int{1, 2, 4} {
		b.Run(fmt.Sprint(engines), func(b *testing.B) {
			host, target := openSome(b, 1), openSome(b, engines)
			p := pinger{left: b.N, done: make(chan struct{})}
			var asking []verbs.QP
			for i := range 8 {
				nic := target.rnics[i%engines]
				h, t := newQP(b, host.rnics[0], p.answered), newQP(b, nic, answer)
				connectQPs(b, h, t, nic)
				connectQPs(b, t, h, host.rnics[0])
				asking = append(asking, h)
			}
			b.ResetTimer()
			for _, qp := range asking {
				ping(qp)
			}
			<-p.done
		})
	}
}

// pinger sends the next message on a connection when the last one is answered. Only the host's engine uses it.
type pinger struct {
	left int
	done chan struct{}
}

func (p *pinger) answered(qp verbs.QP) {
	if p.left--; p.left == 0 {
		close(p.done)
	}
	ping(qp)
}

// answer answers a message after some work.
func answer(qp verbs.QP) {
	for began := time.Now(); time.Since(began) < 20*time.Microsecond; {
	}
	ping(qp)
}

// ping sends an empty message.
func ping(qp verbs.QP) {
	_, _ = qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSendWithImm}}) // fails when the benchmark ends
}

// newQP makes a queue pair that calls f for each message.
func newQP(b *testing.B, nic *RNIC, f func(verbs.QP)) verbs.QP {
	b.Helper()
	pd, err := nic.dev.AllocPD()
	if err != nil {
		b.Fatal(err)
	}
	var qp verbs.QP
	cq, err := nic.dev.CreateCQ(16, func(cq verbs.CQ) {
		var wcs [16]verbs.WC
		for more := true; more; more = cq.ReqNotify() {
			for _, wc := range wcs[:cq.Poll(wcs[:])] {
				if wc.Opcode == verbs.WCRecv && wc.Status == verbs.WCSuccess {
					_, _ = qp.PostRecv([]verbs.RecvWR{{}})
					f(qp)
				}
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	cq.ReqNotify()
	if qp, err = pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 4, MaxRecvWR: 2}); err != nil {
		b.Fatal(err)
	}
	if err := qp.Modify(verbs.QPAttr{State: verbs.Init}); err != nil {
		b.Fatal(err)
	}
	if _, err := qp.PostRecv([]verbs.RecvWR{{}}); err != nil {
		b.Fatal(err)
	}
	return qp
}

// connectQPs connects qp with a queue pair of an RNIC.
func connectQPs(b *testing.B, qp, with verbs.QP, of *RNIC) {
	b.Helper()
	attr := verbs.QPAttr{
		Remote: of.dev.Attr().Addr, DestQPN: with.QPNum(), PathMTU: verbs.MTU4096, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
	for _, attr.State = range []verbs.QPState{verbs.RTR, verbs.RTS} {
		if err := qp.Modify(attr); err != nil {
			b.Fatal(err)
		}
	}
}
