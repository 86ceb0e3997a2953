package cm_test

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// patience is the timeout for what takes microseconds, on a machine that may stall for a while.
const patience = 5 * time.Minute

// rnic is a software RNIC on loopback with its connection manager.
type rnic struct {
	t    *testing.T
	dev  *roce.Device
	m    *cm.Manager
	addr netip.AddrPort
}

// openRNIC opens a device on addr; both are closed with the test.
func openRNIC(t *testing.T, addr netip.AddrPort) *rnic {
	t.Helper()
	conn, err := udp.Listen(addr, udp.Config{})
	if err != nil {
		t.Skipf("no socket on %v: %v", addr, err)
	}
	dev, err := roce.Open(conn, roce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := cm.New(dev, cm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rnic{t, dev, m, conn.LocalAddr()}
}

// loopback returns a random address of 127.0.0.0/8.
func loopback() netip.Addr {
	var b [3]byte
	rand.Read(b[:])
	return netip.AddrFrom4([4]byte{127, b[0], b[1], b[2]&0x7f + 1})
}

// side is one end of a connection over an RNIC.
type side struct {
	*rnic
	id     verbs.CMID
	events chan verbs.CMEvent
	qp     verbs.QP
	wcs    chan verbs.WC
	mr     verbs.MR
	buf    []byte
}

func (n *rnic) newSide() *side {
	return &side{rnic: n, events: make(chan verbs.CMEvent, 64), wcs: make(chan verbs.WC, 64)}
}

func (s *side) handle(e verbs.CMEvent) { s.events <- e }

func (s *side) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) want(typ verbs.CMEventType) verbs.CMEvent {
	s.t.Helper()
	e, ok := soon.Receive(s.events)
	if !ok {
		s.t.Fatalf("no event, want %d", typ)
	}
	if e.Type != typ {
		s.t.Fatalf("event %d (%v, reason %d), want %d", e.Type, e.Err, e.Reason, typ)
	}
	return e
}

// prepareQP makes the QP of s with one receive posted.
func (s *side) prepareQP() {
	s.t.Helper()
	pd, err := s.dev.AllocPD()
	s.must(err)
	cq, err := s.dev.CreateCQ(16, s.complete)
	s.must(err)
	cq.ReqNotify()
	s.buf = make([]byte, 8192)
	s.mr, err = pd.RegMR(s.buf, verbs.AccessLocalWrite)
	s.must(err)
	s.qp, err = s.id.CreateQP(pd, verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1, SQSigAll: true,
	})
	s.must(err)
	_, err = s.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGList: s.sge(4096, 4096)}})
	s.must(err)
}

func (s *side) sge(off uint64, length uint32) []verbs.SGE {
	return []verbs.SGE{{Addr: s.mr.Addr() + off, Length: length, LKey: s.mr.LKey()}}
}

func (s *side) complete(cq verbs.CQ) {
	var wc [4]verbs.WC
	for {
		n := cq.Poll(wc[:])
		for _, w := range wc[:n] {
			s.wcs <- w
		}
		if n == 0 && !cq.ReqNotify() {
			return
		}
	}
}

func (s *side) completion(op verbs.WCOpcode, status verbs.WCStatus) {
	s.t.Helper()
	w, ok := soon.Receive(s.wcs)
	if !ok {
		s.t.Fatal("no completion")
	}
	if w.Status != status || status == verbs.WCSuccess && w.Opcode != op {
		s.t.Fatalf("completion %+v, want opcode %d status %d", w, op, status)
	}
}

// send sends msg from s to the posted receive of to.
func (s *side) send(to *side, msg string) {
	s.t.Helper()
	n := copy(s.buf, msg)
	_, err := s.qp.PostSend([]verbs.SendWR{{WRID: 2, Opcode: verbs.WRSend, SGList: s.sge(0, uint32(n))}})
	s.must(err)
	to.completion(verbs.WCRecv, verbs.WCSuccess)
	s.completion(verbs.WCSend, verbs.WCSuccess)
	if got := string(to.buf[4096:][:n]); got != msg {
		s.t.Errorf("received %q, want %q", got, msg)
	}
	_, err = to.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGList: to.sge(4096, 4096)}})
	s.must(err)
}

// dial connects to l's listener; the QPs are ready when it returns.
func (n *rnic) dial(l *side, dst netip.AddrPort) (active, passive *side) {
	n.t.Helper()
	a, p := n.newSide(), l.newSide()
	id, err := n.m.CreateID(a.handle)
	a.must(err)
	a.id = id
	a.must(id.ResolveAddr(netip.Addr{}, dst, patience))
	a.want(verbs.CMAddrResolved)
	a.must(id.ResolveRoute(patience))
	a.want(verbs.CMRouteResolved)
	a.prepareQP()
	param := verbs.ConnParam{ResponderResources: 16, InitiatorDepth: 16, RetryCount: 7, RNRRetryCount: 7}
	a.must(id.Connect(param))
	p.id = l.want(verbs.CMConnectRequest).ID
	p.id.SetHandler(p.handle)
	p.prepareQP()
	p.must(p.id.Accept(param))
	if e := a.want(verbs.CMEstablished); e.Param.InitiatorDepth != 16 || e.Param.ResponderResources != 16 {
		n.t.Errorf("established with %+v", e.Param)
	}
	p.want(verbs.CMEstablished)
	return a, p
}

func (n *rnic) listener() (*side, netip.AddrPort) {
	n.t.Helper()
	l := n.newSide()
	id, err := n.m.CreateID(l.handle)
	l.must(err)
	l.must(id.Listen(netip.AddrPort{}, 0))
	l.id = id
	return l, id.LocalAddr()
}

// exchange sends both ways over a connection and ends it from the active side, which knows of the end at the returned
// time.
func exchange(a, p *side) (over time.Time) {
	a.t.Helper()
	a.send(p, "command capsule")
	p.send(a, "response capsule")
	a.must(a.id.Disconnect())
	a.completion(verbs.WCRecv, verbs.WCWRFlushErr)
	p.want(verbs.CMDisconnected)
	p.must(p.id.Disconnect())
	p.completion(verbs.WCRecv, verbs.WCWRFlushErr)
	a.want(verbs.CMDisconnected)
	over = time.Now()
	a.want(verbs.CMTimewaitExit)
	p.want(verbs.CMTimewaitExit)
	a.must(a.id.Destroy())
	p.must(p.id.Destroy())
	return over
}

func TestOverRNIC(t *testing.T) {
	target := openRNIC(t, netip.AddrPortFrom(loopback(), 0))
	host := openRNIC(t, netip.AddrPortFrom(loopback(), target.addr.Port()))
	l, dst := target.listener()
	const interval = 300 * time.Millisecond // the shortest time after which a message is repeated
	var longest time.Duration
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(*testing.T) {
			began := time.Now()
			longest = max(longest, exchange(host.dial(l, dst)).Sub(began))
		})
	}
	for _, n := range []*rnic{host, target} {
		c := n.m.Counters()
		repeated := c.Retransmits.Load() != 0 || c.Dropped.Load() != 0 // Dropped: an answer that nobody waits for any more
		if c.Connects.Load()+c.Accepts.Load() != 3 || c.Disconnects.Load() != 3 || repeated && longest < interval ||
			c.Malformed.Load() != 0 || c.Connections.Load() != 0 {
			t.Errorf("%v: connects %d, accepts %d, disconnects %d, retransmits %d, dropped %d, malformed %d, left %d", n.addr,
				c.Connects.Load(), c.Accepts.Load(), c.Disconnects.Load(), c.Retransmits.Load(),
				c.Dropped.Load(), c.Malformed.Load(), c.Connections.Load())
		}
	}
}

// One device is both ends, over IPv6.
func TestOverOneRNIC(t *testing.T) {
	n := openRNIC(t, netip.MustParseAddrPort("[::1]:0"))
	l, dst := n.listener()
	exchange(n.dial(l, dst))
}

func TestRejectOverRNIC(t *testing.T) {
	target := openRNIC(t, netip.AddrPortFrom(loopback(), 0))
	host := openRNIC(t, netip.AddrPortFrom(loopback(), target.addr.Port()))
	a := host.newSide()
	id, err := host.m.CreateID(a.handle)
	a.must(err)
	a.id = id
	a.must(id.ResolveAddr(netip.Addr{}, netip.AddrPortFrom(target.addr.Addr(), 4420), patience))
	a.want(verbs.CMAddrResolved)
	a.must(id.ResolveRoute(patience))
	a.want(verbs.CMRouteResolved)
	a.prepareQP()
	a.must(id.Connect(verbs.ConnParam{RetryCount: 7, RNRRetryCount: 7}))
	if e := a.want(verbs.CMRejected); e.Reason != verbs.RejectInvalidServiceID {
		t.Errorf("reason %d", e.Reason)
	}
}

// A device that is closed under its manager's connections leaves no goroutine and causes no panic.
func TestCloseWithConnection(t *testing.T) {
	target := openRNIC(t, netip.AddrPortFrom(loopback(), 0))
	host := openRNIC(t, netip.AddrPortFrom(loopback(), target.addr.Port()))
	l, dst := target.listener()
	a, p := host.dial(l, dst)
	a.send(p, "one")
	a.must(host.m.Close())
	a.want(verbs.CMDeviceRemoval)
	p.want(verbs.CMDisconnected)
}
