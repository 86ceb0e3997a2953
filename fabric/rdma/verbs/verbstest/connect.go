package verbstest

import (
	"bytes"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Bytes of private data that every provider carries: what InfiniBand's messages have room for, behind the header of
// RDMA-CM.
const (
	connectPrivate = 56
	acceptPrivate  = 196
	rejectPrivate  = 148
)

// private returns n bytes of private data.
func private(n int) []byte {
	b := make([]byte, n)
	fill(b, n)
	return b
}

// wantPrivate checks private data, behind which a provider may have zeroes.
func (s *session) wantPrivate(ev verbs.CMEvent, n int) {
	s.Helper()
	if want := private(n); !bytes.HasPrefix(ev.Param.PrivateData, want) {
		s.Errorf("%v with private data % x, want % x", ev.Type, ev.Param.PrivateData, want)
	}
}

// testConnect: what each side asks for reaches the other.
func testConnect(s *session) {
	l, at := s.listen()
	h, t := s.route(at), s.newEnd()
	h.equip(1)
	if h.id.QP() != h.qp || h.id.Device() == nil || h.id.Device() != h.id.Device() || h.id.RemoteAddr() != at {
		s.Error("the identifier doesn't know its queue pair, device or peer")
	}
	s.must(h.id.Connect(verbs.ConnParam{
		PrivateData: private(connectPrivate), ResponderResources: 4, InitiatorDepth: 2, RetryCount: 7, RNRRetryCount: 7,
	}))
	ev := l.wantEvent(verbs.CMConnectRequest)
	s.wantPrivate(ev, connectPrivate)
	if ev.Listen != l.id || ev.Param.InitiatorDepth != 4 || ev.Param.ResponderResources != 2 {
		s.Errorf("request %+v", ev)
	}
	t.id = ev.ID
	t.id.SetHandler(t.event)
	t.equip(1)
	if addr := t.id.LocalAddr(); addr != at || t.id.RemoteAddr().Addr() != s.host.Addr {
		s.Errorf("request from %v to %v, want from %v to %v", t.id.RemoteAddr(), addr, s.host.Addr, at)
	}
	s.must(t.id.Accept(verbs.ConnParam{
		PrivateData: private(acceptPrivate), ResponderResources: 2, InitiatorDepth: 3, RetryCount: 7, RNRRetryCount: 7,
	}))
	ev = h.wantEvent(verbs.CMEstablished)
	s.wantPrivate(ev, acceptPrivate)
	if ev.Param.InitiatorDepth != 2 || ev.Param.ResponderResources != 3 {
		s.Errorf("established with %+v", ev.Param)
	}
	h.post(h.send(1, 10))
	t.wantEvent(verbs.CMEstablished)
	t.want(0, verbs.WCSuccess)
	if a, b := h.qp.Query().State, t.qp.Query().State; a != verbs.RTS || b != verbs.RTS {
		s.Errorf("states %v and %v", a, b)
	}
}

func testReject(s *session) {
	l, at := s.listen()
	h := s.route(at)
	h.equip(0)
	s.must(h.id.Connect(param))
	id := l.wantEvent(verbs.CMConnectRequest).ID
	s.must(id.Reject(private(rejectPrivate)))
	s.must(id.Destroy())
	ev := h.wantEvent(verbs.CMRejected)
	s.wantPrivate(ev, rejectPrivate)
	if ev.Reason != verbs.RejectConsumer {
		s.Errorf("rejected: %v", ev.Reason)
	}
}

func testNobodyListens(s *session) {
	l, at := s.listen()
	s.must(l.id.Destroy())
	h := s.route(at)
	h.equip(0)
	s.must(h.id.Connect(param))
	if ev := h.wantEvent(verbs.CMRejected); ev.Reason != verbs.RejectInvalidServiceID {
		s.Errorf("rejected: %v", ev.Reason)
	}
}

// testTargetFirst: what the target sends as soon as it has accepted arrives, though some transports hold it back until
// the host has sent something.
func testTargetFirst(s *session) {
	l, at := s.listen()
	h, t := s.route(at), s.newEnd()
	h.equip(1)
	s.must(h.id.Connect(param))
	t.id = l.wantEvent(verbs.CMConnectRequest).ID
	t.id.SetHandler(t.event)
	t.equip(1)
	s.must(t.id.Accept(param))
	t.post(t.send(1, 100))
	h.wantEvent(verbs.CMEstablished)
	h.post(h.send(1, 100))
	for _, e := range []*end{h, t} {
		e.wantBoth()
	}
}

// wantBoth waits for the completions of SEND 1 and receive 0, in any order.
func (e *end) wantBoth() {
	e.Helper()
	first := e.next()
	second := first.WRID ^ 1
	if first.Status != verbs.WCSuccess {
		e.Fatalf("completion %d: %v", first.WRID, first.Status)
	}
	e.want(second, verbs.WCSuccess)
}
