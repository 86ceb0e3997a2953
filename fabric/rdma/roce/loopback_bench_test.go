package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// benchPort keeps the benchmarks out of the way of programs that serve RoCEv2 here.
const benchPort = 4801

// loopSide is one end over a real socket: 64 KiB of receives and a large area for data.
type loopSide struct {
	dev  *Device
	pd   verbs.PD
	cq   verbs.CQ
	qp   verbs.QP
	mr   verbs.MR
	buf  []byte
	sges []verbs.SGE
	send []verbs.SendWR
	recv []verbs.RecvWR
	tail []verbs.SendWR
	wcs  [64]verbs.WC
}

const (
	loopDepth   = 512
	loopCapsule = 64
	loopData    = 128 << 10 // offset of the data
	loopMemory  = loopData + 32*128<<10
)

func openLoop(b *testing.B, addr string, onCQ func(*loopSide)) *loopSide {
	conn, err := udp.Listen(netip.AddrPortFrom(netip.MustParseAddr(addr), benchPort), udp.Config{TrafficClass: Config{}.SocketClass()})
	if err != nil {
		b.Skip(err)
	}
	s := &loopSide{buf: make([]byte, loopMemory)}
	s.dev, err = Open(conn, Config{})
	check(b, err)
	s.pd, err = s.dev.AllocPD()
	check(b, err)
	s.cq, err = s.dev.CreateCQ(4*loopDepth, func(verbs.CQ) { onCQ(s) })
	check(b, err)
	s.mr, err = s.pd.RegMR(s.buf, allAccess)
	check(b, err)
	s.qp = s.newQP(b)
	b.Cleanup(func() { _ = s.dev.Close() })
	return s
}

func (s *loopSide) newQP(b *testing.B) verbs.QP {
	q, err := s.pd.CreateQP(verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq,
		MaxSendWR: loopDepth, MaxRecvWR: loopDepth, MaxSendSGE: 1, MaxRecvSGE: 1,
	})
	check(b, err)
	return q
}

func openLoops(b *testing.B, onA, onB func(*loopSide)) (x, y *loopSide) {
	x, y = openLoop(b, "127.0.0.41", onA), openLoop(b, "127.0.0.42", onB)
	connectLoops(b, x, x.qp, y, y.qp)
	return x, y
}

// connectLoops connects p, of x, with q, of y.
func connectLoops(b *testing.B, x *loopSide, p verbs.QP, y *loopSide, q verbs.QP) {
	ready := func(q verbs.QP, peer *loopSide, remote verbs.QP) {
		check(b, q.Modify(verbs.QPAttr{State: verbs.Init, Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite}))
		check(b, q.Modify(verbs.QPAttr{
			State: verbs.RTR, Remote: peer.dev.Attr().Addr, PeerVendorID: vendorID, DestQPN: remote.QPNum(), PathMTU: verbs.MTU4096,
			VendorOptions: OptionAckAlong, MaxDestRdAtomic: 32, MinRNRTimer: 1,
		}))
		check(b, q.Modify(verbs.QPAttr{State: verbs.RTS, Timeout: 17, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 32}))
	}
	ready(p, y, q)
	ready(q, x, p)
}

func (s *loopSide) sge(off, n int) []verbs.SGE {
	s.sges = append(s.sges, verbs.SGE{Addr: s.mr.Addr() + uint64(off), Length: uint32(n), LKey: s.mr.LKey()})
	return s.sges[len(s.sges)-1:]
}

func (s *loopSide) poll() []verbs.WC {
	n := s.cq.Poll(s.wcs[:])
	s.send, s.tail, s.recv, s.sges = s.send[:0], s.tail[:0], s.recv[:0], s.sges[:0]
	return s.wcs[:n]
}

// flush posts what a handler gathered. The benchmark may have ended, and closed the device, while its last handler was
// running.
func (s *loopSide) flush() {
	ok := func(_ int, err error) {
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			panic(err.Error())
		}
	}
	if len(s.recv) > 0 {
		ok(s.qp.PostRecv(s.recv))
	}
	s.send = append(s.send, s.tail...)
	if len(s.send) > 0 {
		ok(s.qp.PostSend(s.send))
	}
}

// drain calls f for batches of completions until there are none.
func (s *loopSide) drain(f func([]verbs.WC)) {
	for {
		wcs := s.poll()
		if len(wcs) == 0 {
			if !s.cq.ReqNotify() {
				return
			}
			continue
		}
		for i := range wcs {
			if wcs[i].Status != verbs.WCSuccess {
				panic(fmt.Sprint(wcs[i].Status, dump(s.dev)))
			}
		}
		f(wcs)
		s.flush()
	}
}

func (s *loopSide) postRecv(i int) {
	s.recv = append(s.recv, verbs.RecvWR{WRID: uint64(i), SGList: s.sge(i*loopCapsule, loopCapsule)})
}

// BenchmarkLoopbackEcho resembles NVMe reads: a command of 64 bytes is answered by an RDMA WRITE of 4 KiB and a SEND of
// 16 bytes.
func BenchmarkLoopbackEcho(b *testing.B) {
	for _, depth := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) { benchmarkEcho(b, depth) })
	}
}

// answerReads answers each command of wcs in the memory of its host.
func (s *loopSide) answerReads(wcs []verbs.WC, host *loopSide) {
	for i := range wcs {
		if wcs[i].Opcode != verbs.WCRecv {
			continue
		}
		id := int(wcs[i].WRID)
		s.postRecv(id)
		s.send = append(s.send, verbs.SendWR{
			Opcode: verbs.WRRDMAWrite, SGList: s.sge(loopData+id*4096, 4096),
			RemoteAddr: host.mr.Addr() + loopData + uint64(id)*4096, RKey: host.mr.RKey(),
		})
		s.tail = append(s.tail, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: s.sge(0, 16)})
	}
}

// begin posts the receives, and has the handler called from then on.
func (s *loopSide) begin(receives int) {
	s.sges = make([]verbs.SGE, 0, 4*loopDepth)
	for i := range receives {
		s.postRecv(i)
	}
	s.flush()
	s.poll()
	s.cq.ReqNotify()
}

func benchmarkEcho(b *testing.B, depth int) {
	var left, open atomic.Int64
	done := make(chan struct{})
	var memory *loopSide // the host, in whose memory reads are answered
	host := func(s *loopSide) {
		s.drain(func(wcs []verbs.WC) {
			for i := range wcs {
				if wcs[i].Opcode != verbs.WCRecv {
					continue
				}
				s.postRecv(int(wcs[i].WRID))
				if left.Add(-1) >= 0 {
					s.send = append(s.send, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: s.sge(0, 64)})
				} else if open.Add(-1) == 0 {
					close(done)
				}
			}
		})
	}
	serve := func(s *loopSide) {
		s.drain(func(wcs []verbs.WC) { s.answerReads(wcs, memory) })
	}
	x, y := openLoops(b, host, serve)
	memory = x
	x.begin(2 * depth)
	y.begin(2 * depth)
	open.Store(int64(depth))
	left.Store(int64(b.N))
	b.SetBytes(4096)
	b.ReportAllocs()
	b.ResetTimer()
	for range depth {
		command := []verbs.SGE{{Addr: x.mr.Addr(), Length: 64, LKey: x.mr.LKey()}}
		if _, err := x.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: command}}); err != nil {
			b.Fatal(err)
		}
	}
	cpu := processorTime()
	<-done
	b.StopTimer()
	b.ReportMetric(float64(processorTime()-cpu)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "io/s")
	reportLoss(b, x, y)
}

// processorTime returns the processor time that this process has used, which says more than the clock does when other
// programs run too.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reportLoss logs losses, and how full calls were.
func reportLoss(b *testing.B, sides ...*loopSide) {
	for _, s := range sides {
		c := s.dev.Counters()
		for _, k := range []Counter{
			Retransmitted, PacketSeqErr, ImpliedNAKSeqErr, LocalAckTimeoutErr, EarlyRetransmit, OutOfSequence, RecoveredICRC, BadICRC,
		} {
			if c[k] > 0 {
				b.Logf("%s %v=%d", s.dev.Attr().Addr, k, c[k])
			}
		}
		line := fmt.Sprintf("%s sends %.1f packets a call", s.dev.Attr().Addr, float64(c[SentPackets])/float64(c[SendCalls]))
		if u, ok := s.dev.conn.(udp.Counted); ok {
			u := u.Counters()
			line += fmt.Sprintf(", receives %.1f; kernel dropped %d, refused %d",
				float64(u.RxDatagrams.Load())/float64(u.RxSyscalls.Load()), u.RxKernelDrops.Load(), u.TxDrops.Load())
		}
		b.Log(line)
	}
}

// TestLoopbackAllocatesNothing counts allocations over real sockets, on both sides.
func TestLoopbackAllocatesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	for name, run := range map[string]func(*testing.B){
		"echo": func(b *testing.B) { benchmarkEcho(b, 32) },
		"read": func(b *testing.B) { benchmarkBulk(b, verbs.WRRDMARead) },
	} {
		if r := testing.Benchmark(run); r.N > 1000 && r.AllocsPerOp() != 0 {
			t.Errorf("%s: %d allocations a request in %d", name, r.AllocsPerOp(), r.N)
		}
	}
}

// BenchmarkLoopbackBulk moves 128 KiB a request, 32 at once, by WRITE and by READ.
func BenchmarkLoopbackBulk(b *testing.B) {
	for _, op := range bulkOps {
		b.Run(op.name, func(b *testing.B) { benchmarkBulk(b, op.opcode) })
	}
}

var bulkOps = []struct {
	name   string
	opcode verbs.WROpcode
}{{"write", verbs.WRRDMAWrite}, {"read", verbs.WRRDMARead}}

func benchmarkBulk(b *testing.B, op verbs.WROpcode) {
	const depth, size = 32, 128 << 10
	var left, open atomic.Int64
	done := make(chan struct{})
	var peer *loopSide
	post := func(s *loopSide, i int) {
		s.send = append(s.send, verbs.SendWR{
			WRID: uint64(i), Opcode: op, Flags: verbs.SendSignaled, SGList: s.sge(loopData+i*size, size),
			RemoteAddr: peer.mr.Addr() + loopData + uint64(i)*size, RKey: peer.mr.RKey(),
		})
	}
	host := func(s *loopSide) {
		s.drain(func(wcs []verbs.WC) {
			for i := range wcs {
				if left.Add(-1) >= 0 {
					post(s, int(wcs[i].WRID))
				} else if open.Add(-1) == 0 {
					close(done)
				}
			}
		})
	}
	x, y := openLoops(b, host, func(*loopSide) {})
	peer = y
	x.cq.ReqNotify()
	open.Store(depth)
	left.Store(int64(b.N))
	b.SetBytes(size)
	b.ReportAllocs()
	b.ResetTimer()
	first := *x // with slices of its own: the handler may run meanwhile
	for i := range depth {
		post(&first, i)
	}
	if _, err := first.qp.PostSend(first.send); err != nil {
		b.Fatal(err)
	}
	cpu := processorTime()
	<-done
	b.StopTimer()
	b.ReportMetric(float64(processorTime()-cpu)/float64(b.N), "cpu-ns/op")
	reportLoss(b, x, y)
}
