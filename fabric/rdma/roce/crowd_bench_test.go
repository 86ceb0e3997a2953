package roce

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// BenchmarkCrowd has 1 to 1024 queue pairs to one peer, each with a request of 128 KiB outstanding at any time, so that
// most wait for room: a request should cost the same with any number.
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
		s.postOn(qps[i], verbs.SendWR{
			WRID: uint64(i), Opcode: op, Flags: verbs.SendSignaled, SGList: s.sge(loopData+i%32*size, size),
			RemoteAddr: peer.mr.Addr() + loopData + uint64(i%32)*size, RKey: peer.mr.RKey(),
		})
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
	first := &loopSide{mr: x.mr} // with a list of its own: the handler may run at the same time
	for i := range n {
		post(first, i)
	}
	<-done
	b.StopTimer()
	b.ReportMetric(float64(processorTime()-cpu)/float64(b.N+n), "cpu-ns/op")
	reportLoss(b, x, y)
}

// BenchmarkCrowdEcho has 1 to 1024 queue pairs, each of which sends 64 bytes, is answered with 64, and sends again,
// with acknowledgements that go along.
func BenchmarkCrowdEcho(b *testing.B) {
	for _, qps := range []int{1, 32, 256, 1024} {
		b.Run(fmt.Sprintf("qps=%d", qps), func(b *testing.B) { benchmarkCrowdEcho(b, qps) })
	}
}

func benchmarkCrowdEcho(b *testing.B, n int) {
	var left, open atomic.Int64
	done := make(chan struct{})
	of := map[*loopSide]map[uint32]verbs.QP{}
	send := func(s *loopSide, q verbs.QP) {
		s.postOn(q, verbs.SendWR{Opcode: verbs.WRSend, SGList: s.sge(0, 64)})
	}
	answer := func(goesOn func() bool) func(s *loopSide) {
		return func(s *loopSide) {
			s.drain(func(wcs []verbs.WC) {
				for i := range wcs {
					if q := of[s][wcs[i].QPNum]; wcs[i].Opcode == verbs.WCRecv && goesOn() {
						s.recvOn(q)
						send(s, q)
					}
				}
			})
		}
	}
	x, y := openLoops(b, answer(func() bool {
		if left.Add(-1) >= 0 {
			return true
		}
		if open.Add(-1) == 0 {
			close(done)
		}
		return false
	}), answer(func() bool { return true }))
	of[x], of[y] = map[uint32]verbs.QP{}, map[uint32]verbs.QP{}
	for range n {
		p, q := x.newQP(b), y.newQP(b)
		connectLoops(b, x, p, y, q)
		of[x][p.QPNum()], of[y][q.QPNum()] = p, q
		x.recvOn(p)
		y.recvOn(q)
	}
	x.cq.ReqNotify()
	y.cq.ReqNotify()
	open.Store(int64(n))
	left.Store(int64(b.N))
	sender := &loopSide{mr: x.mr} // with a list of its own: the handler may run at the same time
	b.ResetTimer()
	cpu := processorTime()
	for _, q := range of[x] {
		send(sender, q)
	}
	<-done
	b.StopTimer()
	b.ReportMetric(float64(processorTime()-cpu)/float64(b.N+n), "cpu-ns/op")
	b.ReportMetric(float64(x.dev.Counters()[SentPackets]+y.dev.Counters()[SentPackets])/float64(b.N+n), "packets/op")
	reportLoss(b, x, y)
}

// postOn and recvOn post one request to q.
func (s *loopSide) postOn(q verbs.QP, wr verbs.SendWR) {
	if _, err := q.PostSend([]verbs.SendWR{wr}); err != nil && !errors.Is(err, verbs.ErrClosed) {
		panic(err.Error())
	}
}

func (s *loopSide) recvOn(q verbs.QP) {
	if _, err := q.PostRecv([]verbs.RecvWR{{SGList: s.sge(loopCapsule, loopCapsule)}}); err != nil && !errors.Is(err, verbs.ErrClosed) {
		panic(err.Error())
	}
}
