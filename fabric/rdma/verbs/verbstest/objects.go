package verbstest

import (
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// bind is a work request that exposes to the peer what e receives. It isn't signaled: what follows it finds it done.
func (e *end) bind(w verbs.MW, access verbs.Access) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRBindMW, MW: w, Bind: verbs.MWBind{MR: e.mr, Addr: e.mr.Addr() + half, Length: half, Access: access}}
}

// window makes a memory window; ok is false if the RNICs have none.
func (e *end) window() (w verbs.MW, ok bool) {
	e.Helper()
	w, err := e.pd.AllocMW()
	if e.lacks(verbs.WRBindMW) {
		e.wantErr("a window", err, verbs.ErrUnsupported)
		return nil, false
	}
	e.must(err)
	return w, true
}

// testWindows: a window is open when the peer gets a message that follows the binding, and closed when the message that
// invalidates its key is received. Then it may be bound again, and has another key.
func testWindows(s *session) {
	h, t := s.connect(4)
	w, ok := h.window()
	if !ok {
		return
	}
	var old uint32
	for round := range uint64(3) {
		key := w.RKey()
		if key == old {
			s.Fatalf("key %#x again", key)
		}
		h.post(h.bind(w, verbs.AccessRemoteWrite), h.send(1, 64))
		h.want(1, verbs.WCSuccess)
		t.want(round, verbs.WCSuccess)
		fill(t.buf[:5000], int(round))
		write := t.remote(2, verbs.WRRDMAWrite, h, 5000)
		write.RKey = key
		answer := t.send(3, 16)
		answer.Opcode, answer.InvalidateRKey = verbs.WRSendWithInv, key
		t.post(write, answer)
		t.want(2, verbs.WCSuccess)
		t.want(3, verbs.WCSuccess)
		wc := h.want(round, verbs.WCSuccess)
		if wc.Flags != verbs.WCWithInv || wc.InvalidatedRKey != key || wc.ByteLen != 16 {
			s.Fatalf("completion %+v, want one that invalidates %#x", wc, key)
		}
		s.wantMoved(t.buf[16:], h.buf[half+16:], 5000-16) // the answer was received over the first 16 bytes
		old = key
	}
	s.must(w.Dealloc())
	t.useless(h, old)
}

// testLocalInvalidate: a window is closed when the peer gets a message that follows the invalidation.
func testLocalInvalidate(s *session) {
	h, t := s.connect(4)
	w, ok := h.window()
	if !ok {
		return
	}
	key := w.RKey()
	invalidate := verbs.SendWR{WRID: 2, Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: key}
	h.post(h.bind(w, verbs.AccessRemoteWrite), invalidate, h.send(3, 10))
	if wc := h.want(2, verbs.WCSuccess); wc.Opcode != verbs.WCLocalInv {
		s.Errorf("completion %+v", wc)
	}
	h.want(3, verbs.WCSuccess)
	t.want(0, verbs.WCSuccess)
	if w.RKey() == key {
		s.Errorf("key %#x again", key)
	}
	t.useless(h, key)
}

// useless checks that a key opens nothing of peer to e. Its use ends the connection, and all work on it.
func (e *end) useless(peer *end, key uint32) {
	e.Helper()
	before := peer.buf[half]
	e.buf[0] = before + 1
	peer.recv(50)
	e.recv(50)
	write := e.remote(51, verbs.WRRDMAWrite, peer, 1)
	write.RKey = key
	e.post(write)
	for _, side := range []*end{peer, e} {
		wc := side.next()
		for wc.WRID != 50 { // other receives, and the WRITE, which succeeds with a transport that confirms nothing
			wc = side.next()
		}
		if wc.Status != verbs.WCWRFlushErr {
			e.Errorf("receive: %v, want %v", wc.Status, verbs.WCWRFlushErr)
		}
	}
	if peer.buf[half] != before {
		e.Error("memory was written that wasn't open")
	}
	if !soon.Until(func() bool { return peer.has(verbs.EventQPAccess) }) {
		e.Error("no event tells the peer of it")
	}
}

// testNoAccess: a key that was never given out for remote writes doesn't allow them.
func testNoAccess(s *session) {
	h, t := s.connect(0)
	mr, err := t.pd.RegMR(t.buf, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	s.must(err)
	h.useless(t, mr.RKey())
}

// testArming: the handler is called once after each arming, and ReqNotify says if completions are there already.
func testArming(s *session) {
	h, t := s.connect(4, func(_, t *end) { t.manual = true })
	if t.cq.ReqNotify() {
		s.Error("completions, where there are none")
	}
	for i := range uint64(2) {
		h.post(h.send(i, 10))
	}
	if _, ok := soon.Receive(t.called); !ok {
		s.Fatal("the handler isn't called")
	}
	got := 0
	poll := func() bool {
		var wc [4]verbs.WC
		got += t.cq.Poll(wc[:])
		return got == 2
	}
	if !soon.Until(poll) {
		s.Fatalf("%d completions", got)
	}
	if n := t.calls.Load(); n != 1 {
		s.Errorf("%d calls for one arming", n)
	}
	h.post(h.send(2, 10))
	if !soon.Until(t.cq.ReqNotify) {
		s.Error("ReqNotify doesn't see a completion")
	}
}

// testLimits: a device says how much there is of everything, a queue has room for what was asked for, and an error comes
// with the number of requests before it.
func testLimits(s *session) {
	h, _ := s.connect(0)
	attr := h.id.Device().Attr()
	for what, n := range map[string]int{
		"MaxQP": attr.MaxQP, "MaxQPWR": attr.MaxQPWR, "MaxSGE": attr.MaxSGE, "MaxSGERd": attr.MaxSGERd, "MaxCQE": attr.MaxCQE,
		"MaxQPRdAtom": attr.MaxQPRdAtom, "MaxQPInitAtom": attr.MaxQPInitAtom,
	} {
		if n < 1 {
			s.Errorf("%s is %d", what, n)
		}
	}
	receives := make([]verbs.RecvWR, depth+1)
	n, err := h.qp.PostRecv(receives)
	s.wantErr("one receive too many", err, verbs.ErrNoMemory)
	if n != depth {
		s.Errorf("%d receives posted, want %d", n, depth)
	}
	wr := h.send(1, 1)
	wr.SGList = make([]verbs.SGE, h.init().MaxSendSGE+1)
	n, err = h.qp.PostSend([]verbs.SendWR{h.send(0, 0), wr})
	if n != 1 {
		s.Errorf("%d sends posted, want 1", n)
	}
	s.wantErr("an entry too many", err, verbs.ErrInvalid)
	_, err = h.pd.RegMR(nil, 0)
	s.wantErr("no memory", err, verbs.ErrInvalid)
	init := h.init()
	init.MaxSendWR = attr.MaxQPWR + 1
	_, err = h.pd.CreateQP(init)
	s.wantErr("a queue too long", err, verbs.ErrInvalid)
}

// testLifetimes: nothing that is in use can be freed, and nothing that is freed can be used.
func testLifetimes(s *session) {
	h, _ := s.connect(1)
	s.wantErr("CQ of a QP", h.cq.Destroy(), verbs.ErrBusy)
	s.wantErr("PD of a QP", h.pd.Dealloc(), verbs.ErrBusy)
	s.must(h.id.Destroy())
	s.wantErr("QP of it", h.qp.Destroy(), verbs.ErrClosed)
	_, err := h.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
	s.wantErr("send", err, verbs.ErrClosed)
	_, err = h.qp.PostRecv([]verbs.RecvWR{{}})
	s.wantErr("receive", err, verbs.ErrClosed)
	s.must(h.cq.Destroy())
	s.wantErr("PD of an MR", h.pd.Dealloc(), verbs.ErrBusy)
	s.must(h.mr.Dereg())
	s.wantErr("MR again", h.mr.Dereg(), verbs.ErrClosed)
	s.must(h.pd.Dealloc())
	_, err = h.pd.RegMR(h.buf, 0)
	s.wantErr("MR of a PD that is gone", err, verbs.ErrClosed)
}
