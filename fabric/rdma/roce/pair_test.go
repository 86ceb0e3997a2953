package roce

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
)

// pairConfig describes two connected queue pairs; the zero value suits most tests.
type pairConfig struct {
	mtu        verbs.MTU
	endpoint   simnet.Config
	device     Config
	v6         bool
	psn        uint32 // of both sides
	depth      int
	sges       int
	timeout    uint8
	retryCnt   uint8
	rnrRetry   uint8
	rnrTimer   uint8
	maxRd      uint8
	access     verbs.Access
	unsignaled bool
	memory     int
	class      uint8                   // traffic class that the connection asks for
	ours       bool                    // a raw peer says that it is of our kind
	options    uint32                  // agreed on with a peer of our kind
	foreign    bool                    // neither side knows that the other is of its kind
	seed       uint64                  // of the network; 0 for that of the test
	wrap       func(udp.Conn) udp.Conn // stands before the sockets; may be nil
}

func (c pairConfig) withDefaults() pairConfig {
	c.mtu = cmp.Or(c.mtu, verbs.MTU1024)
	c.endpoint.MTU = cmp.Or(c.endpoint.MTU, 9000)
	c.depth = cmp.Or(c.depth, 64)
	c.sges = cmp.Or(c.sges, 4)
	c.timeout = cmp.Or(c.timeout, 14)
	c.retryCnt = cmp.Or(c.retryCnt, 7)
	c.maxRd = cmp.Or(c.maxRd, 8)
	c.access = cmp.Or(c.access, verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic)
	c.rnrTimer = cmp.Or(c.rnrTimer, 14) // 1.28 ms
	c.memory = cmp.Or(c.memory, 256<<10)
	return c
}

// patient is the ACK timeout of pairs outside bubbles: either side may stand still for seconds, when it doesn't get a
// processor. All retries together take longer than wait does.
const patient = 20 // 4.3 s

// vendor is what a side is told of the vendor of the other one.
func (c pairConfig) vendor() uint32 {
	if c.foreign {
		return 0
	}
	return vendorID
}

// side is one end of a pair.
type side struct {
	t   testing.TB
	dev *Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mr  verbs.MR
	buf []byte

	mu     sync.Mutex
	got    []verbs.WC
	events []verbs.AsyncEventType
	wake   chan struct{}

	handle func(*verbs.WC) // called by the completion queue's handler; may be nil
}

// pair is two devices, each with one queue pair, connected.
type pair struct {
	t    testing.TB
	net  *simnet.Network
	cfg  pairConfig
	a, b *side
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite |
	verbs.AccessRemoteAtomic | verbs.AccessMWBind

func newPair(t testing.TB, c pairConfig) *pair {
	t.Helper()
	c = c.withDefaults()
	if c.seed == 0 {
		c.seed = simnet.SeedFor(t)
	}
	p := &pair{t: t, net: simnet.New(c.seed), cfg: c}
	addrs := [2]netip.Addr{addrA, addrB}
	if c.v6 {
		addrs = [2]netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	}
	p.a, p.b = p.newSide(addrs[0]), p.newSide(addrs[1])
	p.connect(p.a, p.b)
	t.Cleanup(p.close)
	return p
}

func (p *pair) newSide(addr netip.Addr) *side {
	t, c := p.t, p.cfg
	t.Helper()
	endpoint, err := p.net.Listen(netip.AddrPortFrom(addr, 4791), c.endpoint)
	check(t, err)
	conn := udp.Conn(endpoint)
	if c.wrap != nil {
		conn = c.wrap(conn)
	}
	s := &side{t: t, wake: make(chan struct{}, 1)}
	s.dev, err = Open(conn, c.device)
	check(t, err)
	s.pd, err = s.dev.AllocPD()
	check(t, err)
	s.cq, err = s.dev.CreateCQ(4*c.depth, s.onCQ)
	check(t, err)
	s.cq.ReqNotify()
	s.buf = make([]byte, c.memory)
	s.mr, err = s.pd.RegMR(s.buf, allAccess)
	check(t, err)
	s.qp = s.newQP(c)
	return s
}

func (s *side) newQP(c pairConfig) verbs.QP {
	s.t.Helper()
	q, err := s.pd.CreateQP(verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq,
		MaxSendWR: c.depth, MaxRecvWR: c.depth, MaxSendSGE: c.sges, MaxRecvSGE: c.sges,
		SQSigAll: !c.unsignaled, EventHandler: s.onEvent,
	})
	check(s.t, err)
	return q
}

func (p *pair) connect(a, b *side) {
	p.t.Helper()
	p.ready(a.qp, b.dev, b.qp)
	p.ready(b.qp, a.dev, a.qp)
}

func (p *pair) ready(q verbs.QP, peer *Device, remote verbs.QP) {
	p.t.Helper()
	c := p.cfg
	check(p.t, q.Modify(verbs.QPAttr{State: verbs.Init, Access: c.access}))
	check(p.t, q.Modify(verbs.QPAttr{
		State: verbs.RTR, Remote: peer.Attr().Addr, DestQPN: remote.QPNum(), PathMTU: c.mtu,
		PeerVendorID: c.vendor(), VendorOptions: c.options, TrafficClass: c.class,
		RQPSN: c.psn, MaxDestRdAtomic: c.maxRd, MinRNRTimer: c.rnrTimer,
	}))
	check(p.t, q.Modify(verbs.QPAttr{
		State: verbs.RTS, SQPSN: c.psn, Timeout: c.timeout, RetryCnt: c.retryCnt,
		RNRRetry: c.rnrRetry, MaxRdAtomic: c.maxRd,
	}))
}

func (p *pair) close() {
	for _, s := range []*side{p.a, p.b} {
		_ = s.dev.Close()
	}
}

func (s *side) onCQ(cq verbs.CQ) {
	var wc [16]verbs.WC
	for {
		n := cq.Poll(wc[:])
		s.mu.Lock()
		s.got = append(s.got, wc[:n]...)
		s.mu.Unlock()
		for i := range wc[:n] {
			if s.handle != nil {
				s.handle(&wc[i])
			}
		}
		if n == 0 && !cq.ReqNotify() {
			break
		}
	}
	s.signal()
}

func (s *side) onEvent(e verbs.AsyncEvent) {
	s.mu.Lock()
	s.events = append(s.events, e.Type)
	s.mu.Unlock()
	s.signal()
}

func (s *side) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// wait returns the next n completions.
func (s *side) wait(n int) []verbs.WC {
	s.t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		if len(s.got) >= n {
			got := append([]verbs.WC(nil), s.got[:n]...)
			s.got = s.got[n:]
			s.mu.Unlock()
			return got
		}
		have := len(s.got)
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-deadline.C:
			s.t.Fatalf("%d of %d completions in time; %s", have, n, dump(s.dev))
		}
	}
}

// want waits for one completion and checks its request and status.
func (s *side) want(id uint64, status verbs.WCStatus) verbs.WC {
	s.t.Helper()
	wc := s.wait(1)[0]
	if wc.WRID != id || wc.Status != status {
		s.t.Fatalf("completion of %d: %v; want %d: %v; %s", wc.WRID, wc.Status, id, status, dump(s.dev))
	}
	return wc
}

func (s *side) hasEvent(e verbs.AsyncEventType) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.events, e)
}

func dump(d *Device) string {
	text := ""
	for c, v := range d.Counters() {
		if v != 0 {
			text += fmt.Sprintf("%v=%d ", Counter(c), v)
		}
	}
	return text + fmt.Sprintf("%+v", d.qpInfos())
}

func (s *side) sge(off, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: s.mr.Addr() + uint64(off), Length: uint32(n), LKey: s.mr.LKey()}}
}

func (s *side) post(wrs ...verbs.SendWR) {
	s.t.Helper()
	if n, err := s.qp.PostSend(wrs); err != nil {
		s.t.Fatalf("post of %d: %v", n, err)
	}
}

func (s *side) recv(id uint64, sges ...verbs.SGE) {
	s.t.Helper()
	_, err := s.qp.PostRecv([]verbs.RecvWR{{WRID: id, SGList: sges}})
	check(s.t, err)
}

// fill writes a pattern that depends on seed.
func fill(b []byte, seed int) {
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inside returns what f returns for the queue pair of s while nothing changes it.
func inside[T any](s *side, f func(q *qp) T) T {
	s.t.Helper()
	q, ok := s.qp.(*qp)
	if !ok {
		s.t.Fatalf("%T isn't a queue pair of this package", s.qp)
	}
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	return f(q)
}
