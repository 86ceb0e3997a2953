package verbstest

import (
	"bytes"
	"encoding/binary"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// sizes are sizes of messages around those of packets.
var sizes = []int{0, 1, 7, 1024, 4096, 4097, 65536, 100001}

// wantMoved checks that the first n bytes that from sends, and no more, are what to has received.
func (s *session) wantMoved(from, to []byte, n int) {
	s.Helper()
	if !bytes.Equal(from[:n], to[:n]) || bytes.Count(to[n:], []byte{0}) != len(to)-n {
		s.Fatalf("%d bytes came out different, or with others behind them", n)
	}
}

func testSends(s *session) {
	h, t := s.connect(0)
	for i, n := range sizes {
		for _, flags := range []verbs.SendFlags{verbs.SendSignaled, verbs.SendSignaled | verbs.SendInline} {
			if flags&verbs.SendInline != 0 && n > h.id.Device().Attr().MaxInline {
				continue
			}
			fill(h.buf[:n], i)
			clear(t.buf[half:])
			t.recv(uint64(n))
			wr := h.send(1, n)
			wr.Flags = flags
			h.post(wr)
			if wc := h.want(1, verbs.WCSuccess); wc.Opcode != verbs.WCSend {
				s.Errorf("%d bytes: completion %+v", n, wc)
			}
			if wc := t.want(uint64(n), verbs.WCSuccess); wc.Opcode != verbs.WCRecv || wc.ByteLen != uint32(n) || wc.Flags != 0 {
				s.Errorf("%d bytes: completion %+v", n, wc)
			}
			s.wantMoved(h.buf, t.buf[half:], n)
		}
	}
}

// testWrites: data that was written is there when a SEND arrives that was posted behind it. Nothing else tells when.
func testWrites(s *session) {
	h, t := s.connect(0)
	for i, n := range sizes {
		fill(h.buf[:n], i)
		clear(t.buf[half:])
		_, err := t.qp.PostRecv([]verbs.RecvWR{{WRID: 7}})
		s.must(err)
		write := h.remote(1, verbs.WRRDMAWrite, t, n)
		h.post(write, verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
		if wc := h.want(1, verbs.WCSuccess); wc.Opcode != verbs.WCRDMAWrite {
			s.Errorf("%d bytes: completion %+v", n, wc)
		}
		h.want(2, verbs.WCSuccess)
		t.want(7, verbs.WCSuccess)
		s.wantMoved(h.buf, t.buf[half:], n)
	}
	// One of no bytes needs no key.
	h.post(verbs.SendWR{WRID: 3, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled})
	h.want(3, verbs.WCSuccess)
}

// testReads: memory for what is READ is registered for local writes and nothing else, whatever the transport needs.
func testReads(s *session) {
	h, t := s.connect(0)
	sink := make([]byte, half)
	mr, err := h.pd.RegMR(sink, verbs.AccessLocalWrite)
	s.must(err)
	for i, n := range sizes {
		fill(t.buf[half:][:n], i)
		t.recv(8)
		clear(sink)
		read := h.remote(1, verbs.WRRDMARead, t, 0)
		read.SGList = []verbs.SGE{{Addr: mr.Addr(), Length: uint32(n), LKey: mr.LKey()}}
		if parts := min(h.id.Device().Attr().MaxSGERd, h.init().MaxSendSGE); parts > 1 && n > 1 {
			read.SGList = []verbs.SGE{
				{Addr: mr.Addr(), Length: 1, LKey: mr.LKey()}, {Addr: mr.Addr() + 1, Length: uint32(n - 1), LKey: mr.LKey()},
			}
		}
		h.post(read)
		if wc := h.want(1, verbs.WCSuccess); wc.Opcode != verbs.WCRDMARead || wc.ByteLen != uint32(n) {
			s.Errorf("%d bytes: completion %+v", n, wc)
		}
		h.done(t)
		s.wantMoved(t.buf[half:], sink, n)
	}
	// More at once than either side has outstanding wait for their turn.
	for i := range uint64(depth) {
		h.post(h.remote(i, verbs.WRRDMARead, t, 1000))
	}
	for i := range uint64(depth) {
		h.want(i, verbs.WCSuccess)
	}
}

// refused checks that an operation that the RNICs lack is refused, and does no harm. It reports whether they lack it.
func (h *end) refused(t *end, wr verbs.SendWR) bool {
	h.Helper()
	if !h.lacks(wr.Opcode) {
		return false
	}
	n, err := h.qp.PostSend([]verbs.SendWR{wr})
	if n != 0 {
		h.Errorf("operation %d is accepted", wr.Opcode)
	}
	h.wantErr("an operation that the RNIC lacks", err, verbs.ErrUnsupported)
	t.recv(9)
	h.post(h.send(9, 100))
	h.want(9, verbs.WCSuccess)
	t.want(9, verbs.WCSuccess)
	return true
}

func testImmediate(s *session) {
	h, t := s.connect(0)
	for _, c := range []struct {
		op   verbs.WROpcode
		want verbs.WCOpcode
	}{{verbs.WRSendWithImm, verbs.WCRecv}, {verbs.WRRDMAWriteWithImm, verbs.WCRecvRDMAWithImm}} {
		wr := h.remote(1, c.op, t, 100)
		wr.ImmData = 0x01020304
		if h.refused(t, wr) {
			continue
		}
		t.recv(2)
		h.post(wr)
		h.want(1, verbs.WCSuccess)
		if wc := t.want(2, verbs.WCSuccess); wc.Opcode != c.want || wc.Flags != verbs.WCWithImm || wc.ImmData != wr.ImmData || wc.ByteLen != 100 {
			s.Errorf("completion %+v", wc)
		}
	}
}

func testAtomics(s *session) {
	h, t := s.connect(0)
	at := half + int(-(t.mr.Addr()+half)&7)
	word := t.buf[at:][:8]
	for _, c := range []*struct {
		wr   verbs.SendWR
		want verbs.WCOpcode
		left uint64
	}{
		{verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, CompareAdd: 5}, verbs.WCFetchAdd, 1005},
		{verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, CompareAdd: 1000, Swap: 3}, verbs.WCCompSwap, 3},
		{verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, CompareAdd: 1, Swap: 3}, verbs.WCCompSwap, 1000},
	} {
		binary.NativeEndian.PutUint64(word, 1000)
		wr := c.wr
		wr.WRID, wr.Flags, wr.SGList = 1, verbs.SendSignaled, []verbs.SGE{h.sge(0, 8)}
		wr.RemoteAddr, wr.RKey = t.mr.Addr()+uint64(at), t.mr.RKey()
		if h.refused(t, wr) {
			_, err := h.pd.RegMR(make([]byte, 8), verbs.AccessLocalWrite|verbs.AccessRemoteAtomic)
			s.wantErr("memory for atomics", err, verbs.ErrUnsupported)
			continue
		}
		t.recv(8)
		h.post(wr)
		if wc := h.want(1, verbs.WCSuccess); wc.Opcode != c.want {
			s.Errorf("completion %+v", wc)
		}
		h.done(t)
		found, left := binary.NativeEndian.Uint64(h.buf), binary.NativeEndian.Uint64(word)
		if found != 1000 || left != c.left {
			s.Errorf("found %d and left %d, want 1000 and %d", found, left, c.left)
		}
	}
}

// testOrder: sends complete in the order in which they were posted, and only signaled ones do, which also frees the
// entries of those before.
func testOrder(s *session) {
	h, t := s.connect(depth)
	for round := range uint64(2) {
		for i := range uint64(depth / 4) {
			quiet := h.remote(99, verbs.WRRDMAWrite, t, 5000)
			quiet.Flags = 0
			h.post(quiet, h.remote(4*i+1, verbs.WRRDMARead, t, 9000), quiet, h.send(4*i+3, 10))
		}
		for i := range uint64(depth / 4) {
			h.want(4*i+1, verbs.WCSuccess)
			h.want(4*i+3, verbs.WCSuccess)
			t.want(round*depth/4+i, verbs.WCSuccess)
		}
	}
}

// testHandlersPost: a completion queue's handler may post.
func testHandlersPost(s *session) {
	const rounds = 200
	h, _ := s.connect(2, func(h, t *end) {
		answer := func(e *end) func(*verbs.WC) {
			left := rounds
			return func(wc *verbs.WC) {
				if wc.Opcode != verbs.WCRecv || wc.Status != verbs.WCSuccess || left == 0 {
					return
				}
				left--
				e.recv(0)
				e.post(e.send(1, 64))
			}
		}
		h.handle, t.handle = answer(h), answer(t)
	})
	h.post(h.send(1, 64))
	for range 2*rounds + 1 { // SENDs, and receives until one side has stopped
		if wc := h.next(); wc.Status != verbs.WCSuccess {
			s.Fatalf("completion %+v", wc)
		}
	}
}
