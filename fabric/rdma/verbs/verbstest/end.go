package verbstest

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// end is one side of a connection. Its memory has two halves: what it sends, and what it receives.
type end struct {
	*session
	id     verbs.CMID
	events chan verbs.CMEvent
	pd     verbs.PD
	cq     verbs.CQ
	mr     verbs.MR
	buf    []byte
	qp     verbs.QP

	wcs    chan verbs.WC
	handle func(*verbs.WC) // called by the completion queue's handler; may be nil
	manual bool            // completions stay in the queue
	calls  atomic.Int64    // of the completion queue's handler
	called chan struct{}

	mu     sync.Mutex
	asyncs []verbs.AsyncEventType
}

const (
	half  = 256 << 10
	depth = 32
)

func (s *session) newEnd() *end {
	return &end{session: s, events: make(chan verbs.CMEvent, 64), wcs: make(chan verbs.WC, 1024), called: make(chan struct{}, 64)}
}

// patience bounds what takes microseconds, on a machine that may stall for a while.
const patience = 5 * time.Minute

// listen makes a listener of the target.
func (s *session) listen() (l *end, at netip.AddrPort) {
	s.Helper()
	l = s.newEnd()
	var err error
	l.id, err = s.target.CreateID(l.event)
	s.must(err)
	s.must(l.id.Listen(netip.AddrPortFrom(s.target.Addr, 0), depth))
	return l, netip.AddrPortFrom(s.target.Addr, l.id.LocalAddr().Port())
}

// event keeps an event, whose private data is only valid until it returns.
func (e *end) event(ev verbs.CMEvent) {
	ev.Param.PrivateData = append([]byte(nil), ev.Param.PrivateData...)
	e.events <- ev
}

// route makes an identifier of the host from which at is reached.
func (s *session) route(at netip.AddrPort) *end {
	s.Helper()
	e := s.newEnd()
	var err error
	e.id, err = s.host.CreateID(e.event)
	s.must(err)
	s.must(e.id.ResolveAddr(netip.Addr{}, at, patience))
	e.wantEvent(verbs.CMAddrResolved)
	s.must(e.id.ResolveRoute(patience))
	e.wantEvent(verbs.CMRouteResolved)
	return e
}

// equip makes what a connection needs, once its identifier has a device, and posts receives.
func (e *end) equip(receives int) {
	e.Helper()
	dev := e.id.Device()
	var err error
	e.pd, err = dev.AllocPD()
	e.must(err)
	e.cq, err = dev.CreateCQ(4*depth, e.completions)
	e.must(err)
	e.buf = make([]byte, 2*half)
	access := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessMWBind
	if !e.lacks(verbs.WRAtomicFetchAndAdd) {
		access |= verbs.AccessRemoteAtomic
	}
	e.mr, err = e.pd.RegMR(e.buf, access)
	e.must(err)
	e.qp, err = e.id.CreateQP(e.pd, e.init())
	e.must(err)
	for i := range receives {
		e.recv(uint64(i))
	}
	if !e.manual {
		e.cq.ReqNotify()
	}
}

func (e *end) init() verbs.QPInitAttr {
	attr := e.id.Device().Attr()
	return verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: depth, MaxRecvWR: depth,
		MaxSendSGE: min(attr.MaxSGE, 2), MaxRecvSGE: min(attr.MaxSGE, 2), EventHandler: e.async,
	}
}

// param are the parameters of connections, unless a test has its own.
var param = verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4, RetryCount: 7, RNRRetryCount: 7}

// connect connects two ends, each with receives posted. prepare may change them before they are equipped.
func (s *session) connect(receives int, prepare ...func(h, t *end)) (h, t *end) {
	s.Helper()
	l, at := s.listen()
	h, t = s.route(at), s.newEnd()
	for _, f := range prepare {
		f(h, t)
	}
	h.equip(receives)
	s.must(h.id.Connect(param))
	t.id = l.wantEvent(verbs.CMConnectRequest).ID
	t.id.SetHandler(t.event)
	t.equip(receives)
	s.must(t.id.Accept(param))
	h.wantEvent(verbs.CMEstablished)
	s.Cleanup(func() { // so that neither RNIC waits for the other when it is closed
		_, _ = h.id.Destroy(), t.id.Destroy()
	})
	return h, t
}

func (e *end) completions(cq verbs.CQ) {
	e.calls.Add(1)
	if e.manual {
		e.called <- struct{}{}
		return
	}
	var wc [16]verbs.WC
	for {
		n := cq.Poll(wc[:])
		for i := range wc[:n] {
			if e.handle != nil {
				e.handle(&wc[i])
			}
			e.wcs <- wc[i]
		}
		if n == 0 && !cq.ReqNotify() {
			return
		}
	}
}

func (e *end) async(ev verbs.AsyncEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asyncs = append(e.asyncs, ev.Type)
}

// has reports whether an event was raised on the queue pair.
func (e *end) has(x verbs.AsyncEventType) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.asyncs, x)
}

// wantEvent waits for the next event. On the target's side CMEstablished may come at any time after Accept: it is only
// looked for if a test asks for it.
func (e *end) wantEvent(want verbs.CMEventType) verbs.CMEvent {
	e.Helper()
	for {
		ev, ok := soon.Receive(e.events)
		switch {
		case !ok:
			e.Fatalf("no event, want %v", want)
		case ev.Type == want:
			return ev
		case ev.Type != verbs.CMEstablished:
			e.Fatalf("%v (%v, %v), want %v", ev.Type, ev.Err, ev.Reason, want)
		}
	}
}

// next waits for the next completion.
func (e *end) next() verbs.WC {
	e.Helper()
	wc, ok := soon.Receive(e.wcs)
	if !ok {
		e.Fatal("no completion")
	}
	return wc
}

// want waits for the next completion, and checks its request and status.
func (e *end) want(id uint64, status verbs.WCStatus) verbs.WC {
	e.Helper()
	wc := e.next()
	if wc.WRID != id || wc.Status != status || wc.QPNum != e.qp.QPNum() {
		e.Fatalf("completion %d: %v, of QP %#x; want %d: %v, of QP %#x", wc.WRID, wc.Status, wc.QPNum, id, status, e.qp.QPNum())
	}
	return wc
}

// wantErr checks that err is of a kind.
func (s *session) wantErr(what string, err, kind error) {
	s.Helper()
	if !errors.Is(err, kind) {
		s.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// sge names n bytes of the memory.
func (e *end) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: e.mr.Addr() + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}
}

// recv posts a receive of up to half of the memory.
func (e *end) recv(id uint64) {
	e.Helper()
	_, err := e.qp.PostRecv([]verbs.RecvWR{{WRID: id, SGList: []verbs.SGE{e.sge(half, half)}}})
	e.must(err)
}

func (e *end) post(wrs ...verbs.SendWR) {
	e.Helper()
	if n, err := e.qp.PostSend(wrs); err != nil || n != len(wrs) {
		e.Fatalf("%d of %d posted: %v", n, len(wrs), err)
	}
}

// send is a signaled SEND of n bytes.
func (e *end) send(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{e.sge(0, n)}}
}

// remote is an operation on n bytes of what peer receives.
func (e *end) remote(id uint64, op verbs.WROpcode, peer *end, n int) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{e.sge(0, n)},
		RemoteAddr: peer.mr.Addr() + half, RKey: peer.mr.RKey(),
	}
}

// done returns when peer's RNIC has no more to do with what e has READ or changed there: when a message has arrived, for
// which peer posted receive 8 before. The race detector sees nothing of the network.
func (e *end) done(peer *end) {
	e.Helper()
	e.post(e.send(8, 0))
	e.want(8, verbs.WCSuccess)
	peer.want(8, verbs.WCSuccess)
}

// fill writes a pattern that depends on seed.
func fill(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7) + byte(i>>8) + byte(seed)
	}
}
