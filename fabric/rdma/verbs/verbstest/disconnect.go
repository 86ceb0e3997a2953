package verbstest

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// testDisconnect: work is flushed on both sides, even if it is posted later, and both are told. On the side that didn't
// ask for it, a flush may come before the event or only after it has disconnected too.
func testDisconnect(s *session) {
	h, t := s.connect(3)
	h.post(h.send(7, 10))
	h.want(7, verbs.WCSuccess)
	t.want(0, verbs.WCSuccess)
	s.must(h.id.Disconnect())
	for i := range uint64(3) {
		h.want(i, verbs.WCWRFlushErr)
	}
	h.recv(8)
	h.want(8, verbs.WCWRFlushErr)
	h.post(h.send(9, 10))
	h.want(9, verbs.WCWRFlushErr)
	t.wantEvent(verbs.CMDisconnected)
	s.must(t.id.Disconnect())
	for i := range uint64(2) {
		t.want(i+1, verbs.WCWRFlushErr)
	}
	h.wantEvent(verbs.CMDisconnected)
	if a, b := h.qp.Query().State, t.qp.Query().State; a != verbs.Err || b != verbs.Err {
		s.Errorf("states %v and %v", a, b)
	}
}

// testLastWords: messages that have completed arrive, even if their sender disconnects and destroys its queue pair at
// once: a target that refuses a host says why, and disconnects.
func testLastWords(s *session) {
	for _, end := range []func(verbs.CMID) error{verbs.CMID.Disconnect, verbs.CMID.Destroy} {
		const messages = 8
		h, t := s.connect(messages + 1)
		h.post(h.send(50, 1)) // from here on the target may send
		h.want(50, verbs.WCSuccess)
		t.want(0, verbs.WCSuccess)
		for i := range uint64(messages) {
			t.post(t.send(100+i, half/2))
		}
		for i := range uint64(messages) {
			t.want(100+i, verbs.WCSuccess)
		}
		s.must(end(t.id))
		_ = t.id.Destroy()
		for i := range uint64(messages) {
			h.want(i, verbs.WCSuccess)
		}
		h.wantEvent(verbs.CMDisconnected)
		_ = h.id.Destroy()
	}
}

// testDestroy: a queue pair that is destroyed leaves no completion, and its identifier no event.
func testDestroy(s *session) {
	h, t := s.connect(4, func(h, _ *end) { h.manual = true })
	t.post(t.remote(1, verbs.WRRDMAWrite, h, 0))
	h.post(h.send(1, 10))
	t.wantBoth()
	if !soon.Until(h.cq.ReqNotify) {
		s.Fatal("no completion")
	}
	s.must(h.id.Destroy())
	t.wantEvent(verbs.CMDisconnected)
	var wc [8]verbs.WC
	if n := h.cq.Poll(wc[:]); n != 0 {
		s.Errorf("%d completions of a queue pair that is gone", n)
	}
	select {
	case ev := <-h.events:
		s.Errorf("%v of an identifier that is gone", ev.Type)
	default:
	}
}

// testRemoval: when an RNIC is closed, its connections are told, the peer's too, and its listeners, and all that was made
// on it says that it is closed.
func testRemoval(s *session) {
	h, t := s.connect(1)
	l := s.newEnd()
	var err error
	l.id, err = s.host.CreateID(l.event)
	s.must(err)
	s.must(l.id.Listen(netip.AddrPortFrom(h.id.LocalAddr().Addr(), 0), depth))
	done := make(chan error, 1)
	go func() { done <- s.host.Close() }()
	h.wantEvent(verbs.CMDeviceRemoval)
	l.wantEvent(verbs.CMDeviceRemoval)
	_ = l.id.Destroy()
	t.wantEvent(verbs.CMDisconnected)
	_ = t.id.Destroy()
	err, ended := soon.Receive(done)
	if !ended {
		s.Fatal("closing doesn't end")
	}
	s.must(err)
	for what, destroy := range map[string]func() error{
		"QP": h.qp.Destroy, "CQ": h.cq.Destroy, "MR": h.mr.Dereg, "PD": h.pd.Dealloc, "close": s.host.Close,
	} {
		s.wantErr(what, destroy(), verbs.ErrClosed)
	}
	_, err = s.host.CreateID(h.event)
	s.wantErr("identifier", err, verbs.ErrClosed)
}
