package roce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// lengths are lengths around packet boundaries.
func lengths(mtu int) []int {
	return []int{0, 1, 3, 4, mtu - 1, mtu, mtu + 1, 2*mtu - 1, 2 * mtu, 2*mtu + 1, 7*mtu + 5}
}

// lengths returns lengths around the boundaries of c's packets, and of SENDs' if those are longer.
func (c *pairConfig) lengths() []int {
	all := lengths(c.mtu.Bytes())
	if c.options&OptionLongSend != 0 {
		all = append(all, lengths(c.mtu.Bytes()+wire.LongSend)...)
	}
	switch {
	case c.options&OptionLongData != 0:
		all = append(all, wire.LongData-1, wire.LongData, wire.LongData+1, 2*wire.LongData, 2*wire.LongData+1)
	case c.options&OptionJumboData != 0:
		all = append(all, lengths(wire.JumboData)...)
	}
	return all
}

// operation moves n bytes between the start of a's memory and offset half of b's.
type operation struct {
	name string
	run  func(p *pair, n int)
}

const half = 128 << 10

// checkMoved checks that exactly n bytes of to are those of from.
func checkMoved(t testing.TB, from, to []byte, n int) {
	t.Helper()
	if !bytes.Equal(from[:n], to[:n]) {
		t.Fatalf("%d bytes differ", n)
	}
	if to[n] != 0 {
		t.Fatalf("byte behind the %d ones is written", n)
	}
}

func runSend(op verbs.WROpcode, check func(t testing.TB, p *pair, wc verbs.WC)) func(*pair, int) {
	return func(p *pair, n int) {
		fill(p.a.buf[:n], n)
		clear(p.b.buf[half:])
		p.b.recv(7, p.b.sge(half, n+16)...)
		wr := verbs.SendWR{WRID: 1, Opcode: op, SGList: p.a.sge(0, n), ImmData: 0x01020304}
		if op == verbs.WRSendWithInv {
			wr.InvalidateRKey = bindWindow(p.b, 0, 64)
		}
		p.a.post(wr)
		p.a.want(1, verbs.WCSuccess)
		wc := p.b.want(7, verbs.WCSuccess)
		if wc.Opcode != verbs.WCRecv || wc.ByteLen != uint32(n) || wc.QPNum != p.b.qp.QPNum() {
			p.t.Fatalf("receive completion %+v of %d bytes", wc, n)
		}
		checkMoved(p.t, p.a.buf, p.b.buf[half:], n)
		check(p.t, p, wc)
	}
}

// runWriteSend writes n bytes and sends a message behind them. SEND_WITH_INV invalidates the key that the WRITE used.
func runWriteSend(op verbs.WROpcode) func(*pair, int) {
	return func(p *pair, n int) {
		const receive, bytes = 0, 16
		key := p.b.mr.RKey()
		if op == verbs.WRSendWithInv {
			key = bindWindow(p.b, half, half)
		}
		fill(p.a.buf[:n], n)
		fill(p.a.buf[half:half+bytes], n+1)
		clear(p.b.buf)
		p.b.recv(7, p.b.sge(receive, 64)...)
		p.a.post(
			verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, n), RemoteAddr: p.b.mr.Addr() + half, RKey: key},
			verbs.SendWR{WRID: 2, Opcode: op, SGList: p.a.sge(half, bytes), InvalidateRKey: key},
		)
		if wc := p.a.want(1, verbs.WCSuccess); wc.Opcode != verbs.WCRDMAWrite {
			p.t.Fatalf("completion %+v of the WRITE", wc)
		}
		if wc := p.a.want(2, verbs.WCSuccess); wc.Opcode != verbs.WCSend {
			p.t.Fatalf("completion %+v of the SEND", wc)
		}
		wc := p.b.want(7, verbs.WCSuccess)
		if wc.Opcode != verbs.WCRecv || wc.ByteLen != bytes {
			p.t.Fatalf("receive completion %+v", wc)
		}
		if op == verbs.WRSendWithInv && (wc.Flags != verbs.WCWithInv || wc.InvalidatedRKey != key || p.b.dev.rkeys.lookup(key) != nil) {
			p.t.Fatalf("receive completion %+v, want key %#x dead", wc, key)
		}
		checkMoved(p.t, p.a.buf, p.b.buf[half:], n)
		checkMoved(p.t, p.a.buf[half:], p.b.buf[receive:], bytes)
	}
}

// bindWindow binds a window to n bytes at off of s, for its peer, and returns the key.
func bindWindow(s *side, off, n int) uint32 {
	s.t.Helper()
	w, err := s.pd.AllocMW()
	check(s.t, err)
	key := w.RKey()
	s.post(verbs.SendWR{
		WRID: 99, Opcode: verbs.WRBindMW, MW: w,
		Bind: verbs.MWBind{
			MR: s.mr, Addr: s.mr.Addr() + uint64(off), Length: uint64(n), Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
		},
	})
	s.want(99, verbs.WCSuccess)
	return key
}

var operations = []operation{
	{"SEND", runSend(verbs.WRSend, func(t testing.TB, p *pair, wc verbs.WC) {
		if wc.Flags != 0 {
			t.Fatalf("flags %v", wc.Flags)
		}
	})},
	{"SEND_WITH_IMM", runSend(verbs.WRSendWithImm, func(t testing.TB, p *pair, wc verbs.WC) {
		if wc.Flags != verbs.WCWithImm || wc.ImmData != 0x01020304 {
			t.Fatalf("completion %+v", wc)
		}
	})},
	{"SEND_WITH_INV", runSend(verbs.WRSendWithInv, func(t testing.TB, p *pair, wc verbs.WC) {
		if wc.Flags != verbs.WCWithInv || p.b.dev.rkeys.lookup(wc.InvalidatedRKey) != nil || wc.InvalidatedRKey == 0 {
			t.Fatalf("completion %+v", wc)
		}
	})},
	{"RDMA_WRITE", func(p *pair, n int) {
		fill(p.a.buf[:n], n)
		clear(p.b.buf[half:])
		p.a.post(verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, n), RemoteAddr: p.b.mr.Addr() + half, RKey: p.b.mr.RKey()})
		p.a.want(2, verbs.WCSuccess)
		checkMoved(p.t, p.a.buf, p.b.buf[half:], n)
	}},
	{"RDMA_WRITE_WITH_IMM", func(p *pair, n int) {
		fill(p.a.buf[:n], n)
		clear(p.b.buf[half:])
		p.b.recv(8)
		p.a.post(verbs.SendWR{
			WRID: 2, Opcode: verbs.WRRDMAWriteWithImm, SGList: p.a.sge(0, n), RemoteAddr: p.b.mr.Addr() + half, RKey: p.b.mr.RKey(), ImmData: 5,
		})
		p.a.want(2, verbs.WCSuccess)
		wc := p.b.want(8, verbs.WCSuccess)
		if wc.Opcode != verbs.WCRecvRDMAWithImm || wc.ByteLen != uint32(n) || wc.ImmData != 5 || wc.Flags != verbs.WCWithImm {
			p.t.Fatalf("completion %+v", wc)
		}
		checkMoved(p.t, p.a.buf, p.b.buf[half:], n)
	}},
	{"RDMA_READ", func(p *pair, n int) {
		fill(p.b.buf[half:half+n], n)
		clear(p.a.buf)
		p.a.post(verbs.SendWR{WRID: 3, Opcode: verbs.WRRDMARead, SGList: p.a.sge(0, n), RemoteAddr: p.b.mr.Addr() + half, RKey: p.b.mr.RKey()})
		wc := p.a.want(3, verbs.WCSuccess)
		if wc.Opcode != verbs.WCRDMARead || wc.ByteLen != uint32(n) {
			p.t.Fatalf("completion %+v", wc)
		}
		checkMoved(p.t, p.b.buf[half:], p.a.buf, n)
	}},
	{"FETCH_ADD", func(p *pair, n int) {
		runAtomic(p, verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, CompareAdd: uint64(n) + 1}, verbs.WCFetchAdd, 1000+uint64(n)+1)
	}},
	{"CMP_SWP", func(p *pair, n int) {
		runAtomic(p, verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, CompareAdd: 1000, Swap: uint64(n)}, verbs.WCCompSwap, uint64(n))
	}},
	{"RDMA_WRITE, SEND", runWriteSend(verbs.WRSend)},
	{"RDMA_WRITE, SEND_WITH_INV", runWriteSend(verbs.WRSendWithInv)},
}

// runAtomic does an atomic on a word of b's memory that holds 1000, and leaves the value.
func runAtomic(p *pair, wr verbs.SendWR, op verbs.WCOpcode, leaves uint64) {
	off := half + int(-p.b.mr.Addr()&7)
	word := p.b.buf[off : off+8]
	binary.NativeEndian.PutUint64(word, 1000)
	clear(p.a.buf[:16])
	wr.WRID, wr.SGList, wr.RemoteAddr, wr.RKey = 4, p.a.sge(0, 8), p.b.mr.Addr()+uint64(off), p.b.mr.RKey()
	p.a.post(wr)
	wc := p.a.want(4, verbs.WCSuccess)
	if wc.Opcode != op || wc.ByteLen != 8 || p.a.buf[8] != 0 {
		p.t.Fatalf("completion %+v", wc)
	}
	if found := binary.NativeEndian.Uint64(p.a.buf); found != 1000 {
		p.t.Fatalf("found %d, want 1000", found)
	}
	if left := binary.NativeEndian.Uint64(word); left != leaves {
		p.t.Fatalf("left %d, want %d", left, leaves)
	}
}

func TestOperations(t *testing.T) {
	for _, c := range []pairConfig{
		{mtu: verbs.MTU256}, {mtu: verbs.MTU512}, {mtu: verbs.MTU1024, v6: true}, {mtu: verbs.MTU2048},
		{mtu: verbs.MTU4096}, {mtu: verbs.MTU4096, endpoint: simnet.Config{MTU: 9000, Coalesce: true}},
		{mtu: verbs.MTU1024, endpoint: simnet.Config{MTU: 9000, NoSegmentation: true}},
		{mtu: verbs.MTU256, psn: 0xfffffd},
		{mtu: verbs.MTU256, options: OptionLongSend, psn: 0xfffffd},
		{mtu: verbs.MTU4096, options: OptionLongSend, endpoint: simnet.Config{MTU: 9000, Coalesce: true}},
		{mtu: verbs.MTU256, options: OptionWriteSend, psn: 0xfffffd},
		{mtu: verbs.MTU4096, options: OptionLongSend | OptionWriteSend, v6: true, endpoint: simnet.Config{MTU: 9000, Coalesce: true}},
		{mtu: verbs.MTU256, options: OptionAckAlong, psn: 0xfffffd},
		{mtu: verbs.MTU4096, options: OptionLongSend | OptionWriteSend | OptionAckAlong, endpoint: simnet.Config{MTU: 9000, Coalesce: true}},
		{mtu: verbs.MTU4096, options: OptionJumboData | OptionWriteSend, psn: 0xfffffd, endpoint: simnet.Config{MTU: 9000, Coalesce: true}},
		{mtu: verbs.MTU4096, options: OptionLongData | OptionWriteSend, v6: true, psn: 0xfffffd, endpoint: simnet.Config{MTU: 65536}},
	} {
		name := fmt.Sprintf("mtu=%d,v6=%v,coalesce=%v,plain=%v,psn=%#x,options=%d",
			c.mtu.Bytes(), c.v6, c.endpoint.Coalesce, c.endpoint.NoSegmentation, c.psn, c.options)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, c)
				for _, op := range operations {
					for _, n := range c.lengths() {
						op.run(p, n)
					}
				}
			})
		})
	}
}

// TestSelf connects two queue pairs of one device, through its own socket.
func TestSelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		b := &side{t: t, dev: p.a.dev, pd: p.a.pd, cq: p.a.cq, mr: p.a.mr, buf: p.a.buf, wake: make(chan struct{}, 1)}
		p.a.qp, b.qp = p.a.newQP(p.cfg), p.a.newQP(p.cfg)
		p.connect(p.a, b)
		fill(p.a.buf[:5000], 1)
		p.a.post(verbs.SendWR{
			WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 5000), RemoteAddr: p.a.mr.Addr() + half, RKey: p.a.mr.RKey(),
		})
		p.a.want(1, verbs.WCSuccess)
		checkMoved(t, p.a.buf, p.a.buf[half:], 5000)
	})
}
