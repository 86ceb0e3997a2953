package verbs_test

import (
	"fmt"
	"log"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// side is one end: an RNIC, a queue pair on it, and memory that the peer may write to.
type side struct {
	nic  *softrnic.RNIC
	qp   verbs.QP
	cq   verbs.CQ
	done chan struct{} // the CQ has completions
	buf  []byte
	mr   verbs.MR
}

// newSide opens an RNIC on a free loopback address, and makes the rest on it.
func newSide() *side {
	s := &side{done: make(chan struct{}, 1), buf: make([]byte, 4096)}
	var err error
	check := func() {
		if err != nil {
			log.Fatal(err)
		}
	}
	s.nic, err = softrnic.OpenFor(netip.MustParseAddr("127.0.0.1"), softrnic.Config{})
	check()
	dev := s.nic.Device()
	pd, err := dev.AllocPD()
	check()
	s.mr, err = pd.RegMR(s.buf, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	check()
	// The handler is called once for each ReqNotify, in the RNIC's own goroutine.
	s.cq, err = dev.CreateCQ(16, func(verbs.CQ) { s.done <- struct{}{} })
	check()
	s.qp, err = pd.CreateQP(verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1,
	})
	check()
	err = s.qp.Modify(verbs.QPAttr{State: verbs.Init, Access: verbs.AccessRemoteWrite})
	check()
	return s
}

// connect moves the queue pair to RTS. How the two sides exchange their addresses and numbers is up to them; RDMA-CM
// (see CMID) can do it for them.
func (s *side) connect(peer *side) {
	attr := verbs.QPAttr{
		Remote: peer.nic.Device().Attr().Addr, DestQPN: peer.qp.QPNum(), PathMTU: verbs.MTU4096,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
	for _, attr.State = range []verbs.QPState{verbs.RTR, verbs.RTS} {
		if err := s.qp.Modify(attr); err != nil {
			log.Fatal(err)
		}
	}
}

// sge names the first n bytes of the memory.
func (s *side) sge(n int) []verbs.SGE {
	return []verbs.SGE{{Addr: s.mr.Addr(), Length: uint32(n), LKey: s.mr.LKey()}}
}

// next waits for a completion.
func (s *side) next() verbs.WC {
	var wc [1]verbs.WC
	for s.cq.Poll(wc[:]) == 0 {
		if !s.cq.ReqNotify() {
			<-s.done
		}
	}
	return wc[0]
}

// Two queue pairs: one side writes to the memory of the other without its involvement, and then notifies it with a
// SEND, which consumes a receive.
func Example() {
	a, b := newSide(), newSide()
	a.connect(b)
	b.connect(a)

	if _, err := b.qp.PostRecv([]verbs.RecvWR{{WRID: 1}}); err != nil {
		log.Fatal(err)
	}
	n := copy(a.buf, "one-sided")
	// Work requests of a chain are sent in order. Only a signaled one gives a completion.
	_, err := a.qp.PostSend([]verbs.SendWR{
		{WRID: 2, Opcode: verbs.WRRDMAWrite, SGList: a.sge(n), RemoteAddr: b.mr.Addr() + 100, RKey: b.mr.RKey()},
		{WRID: 3, Opcode: verbs.WRSendWithImm, ImmData: uint32(n), Flags: verbs.SendSignaled},
	})
	if err != nil {
		log.Fatal(err)
	}
	sent, received := a.next(), b.next()
	fmt.Println(sent.WRID, sent.Status)
	fmt.Println(received.WRID, received.Status, string(b.buf[100:100+received.ImmData]))

	// Using a key that the peer never gave out ends the connection with an error.
	if _, err := a.qp.PostSend([]verbs.SendWR{
		{WRID: 4, Opcode: verbs.WRRDMAWrite, SGList: a.sge(n), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey() + 1, Flags: verbs.SendSignaled},
	}); err != nil {
		log.Fatal(err)
	}
	failed := a.next()
	fmt.Println(failed.WRID, failed.Status)

	fmt.Println(a.nic.Close(), b.nic.Close()) // and everything that was made on them
	// Output:
	// 3 success
	// 1 success one-sided
	// 4 remote access error
	// <nil> <nil>
}
