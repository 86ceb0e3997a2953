package roce

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// BenchmarkCrowd has 1 to 1024 queue pairs to one peer, each with a request of 128 KiB outstanding at any time, so that most
// wait for room: what a request costs is to be the same.
func BenchmarkCrowd(b *testing.B) {
	for _, op := range bulkOps {
		for _, qps := range []int{1, 32, 256, 1024} {
			b.Run(fmt.Sprintf("%s/qps=%d", op.name, qps), func(b *testing.B) { benchmarkCrowd(b, op.opcode, qps) })
		}
	}
}

func benchmarkCrowd(b *testing.B, op verbs.WROpcode, n int) {
	const size = 128 << 10
	var left, open atomic.Int64
	done := make(chan struct{})
	qps := make([]verbs.QP, n)
	var peer *loopSide
	post := func(s *loopSide, i int) {
		wr := [1]verbs.SendWR{{
			WRID: uint64(i), Opcode: op, Flags: verbs.SendSignaled, SGList: s.sge(loopData+i%32*size, size),
			RemoteAddr: peer.mr.Addr() + loopData + uint64(i%32)*size, RKey: peer.mr.RKey(),
		}}
		if _, err := qps[i].PostSend(wr[:]); err != nil {
			panic(err.Error())
		}
	}
	x, y := openLoops(b, func(s *loopSide) {
		s.drain(func(wcs []verbs.WC) {
			for i := range wcs {
				if left.Add(-1) >= 0 {
					post(s, int(wcs[i].WRID))
				} else if open.Add(-1) == 0 {
					close(done)
				}
			}
		})
	}, func(*loopSide) {})
	peer = y
	for i := range qps {
		p, q := x.newQP(b), y.newQP(b)
		connectLoops(b, x, p, y, q)
		qps[i] = p
	}
	x.cq.ReqNotify()
	open.Store(int64(n))
	left.Store(int64(b.N))
	b.SetBytes(size)
	b.ResetTimer()
	cpu := processorTime()
	first := &loopSide{mr: x.mr} // with a list of its own: the handler may run meanwhile
	for i := range n {
		post(first, i)
	}
	<-done
	b.StopTimer()
	b.ReportMetric(float64(processorTime()-cpu)/float64(b.N+n), "cpu-ns/op")
	reportLoss(b, x, y)
}
