package roce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

func wantErr(t *testing.T, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// TestStates checks the table of transitions (IBTA 10.3.1) and what may be posted when.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		peer := p.b
		attrs := map[verbs.QPState]verbs.QPAttr{
			verbs.Init: {State: verbs.Init, Access: verbs.AccessRemoteRead},
			verbs.RTR:  {State: verbs.RTR, Remote: addrB, DestQPN: peer.qp.QPNum(), PathMTU: verbs.MTU512, MaxDestRdAtomic: 1},
			verbs.RTS:  {State: verbs.RTS, Timeout: 14, RetryCnt: 1, MaxRdAtomic: 1},
		}
		allowed := map[[2]verbs.QPState]bool{
			{verbs.Reset, verbs.Init}: true, {verbs.Init, verbs.RTR}: true, {verbs.RTR, verbs.RTS}: true,
		}
		for from := verbs.Reset; from <= verbs.Err; from++ {
			for to := verbs.Reset; to <= verbs.Err; to++ {
				q := p.a.newQP(p.cfg)
				for s := verbs.Init; s <= from && from != verbs.Err; s++ {
					check(t, q.Modify(attrs[s]))
				}
				if from == verbs.Err {
					check(t, q.Modify(verbs.QPAttr{State: verbs.Err}))
				}
				if got := q.Query().State; got != from {
					t.Fatalf("state %v, want %v", got, from)
				}
				_, err := q.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
				if ok := from == verbs.RTS || from == verbs.Err; (err == nil) != ok {
					t.Errorf("post send in %s: %v", from, err)
				} else if !ok {
					wantErr(t, "post send", err, verbs.ErrState)
				}
				_, err = q.PostRecv([]verbs.RecvWR{{}})
				if (err == nil) != (from != verbs.Reset) {
					t.Errorf("post receive in %s: %v", from, err)
				}
				a := attrs[verbs.RTR] // what either transition needs, so that only the states can be wrong
				a.Timeout, a.RetryCnt, a.MaxRdAtomic = attrs[verbs.RTS].Timeout, attrs[verbs.RTS].RetryCnt, attrs[verbs.RTS].MaxRdAtomic
				a.State = to
				err = q.Modify(a)
				if ok := to == verbs.Err || to == verbs.Reset || allowed[[2]verbs.QPState{from, to}]; ok != (err == nil) {
					t.Errorf("%s to %s: %v", from, to, err)
				} else if !ok {
					wantErr(t, "modify", err, verbs.ErrInvalid)
				}
				check(t, q.Destroy())
			}
		}
	})
}

func TestModifyArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		good := verbs.QPAttr{State: verbs.RTR, Remote: addrB, DestQPN: 77, PathMTU: verbs.MTU256}
		q := p.a.newQP(p.cfg)
		check(t, q.Modify(verbs.QPAttr{State: verbs.Init}))
		for what, alter := range map[string]func(*verbs.QPAttr){
			"no address": func(a *verbs.QPAttr) { a.Remote = netip.Addr{} },
			"family":     func(a *verbs.QPAttr) { a.Remote = netip.MustParseAddr("fd00::1") },
			"MTU 0":      func(a *verbs.QPAttr) { a.PathMTU = 0 },
			"MTU 6":      func(a *verbs.QPAttr) { a.PathMTU = 6 },
			"QP 1":       func(a *verbs.QPAttr) { a.DestQPN = 1 },
			"reads":      func(a *verbs.QPAttr) { a.MaxDestRdAtomic = maxRdAtomic + 1 },
			"RNR timer":  func(a *verbs.QPAttr) { a.MinRNRTimer = 32 },
		} {
			a := good
			alter(&a)
			wantErr(t, what, q.Modify(a), verbs.ErrInvalid)
		}
		check(t, q.Modify(good))
		for what, a := range map[string]verbs.QPAttr{
			"timeout": {State: verbs.RTS, Timeout: 32},
			"retries": {State: verbs.RTS, RetryCnt: 8},
			"RNR":     {State: verbs.RTS, RNRRetry: 8},
			"reads":   {State: verbs.RTS, MaxRdAtomic: maxRdAtomic + 1},
		} {
			wantErr(t, what, q.Modify(a), verbs.ErrInvalid)
		}
		check(t, q.Modify(verbs.QPAttr{State: verbs.RTS}))
		_, err := q.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMARead}})
		wantErr(t, "READ without MaxRdAtomic", err, verbs.ErrInvalid)
	})
}

// TestPostLimits: queues and lists have the size that was asked for, and an error comes with the number of requests
// that were posted before it.
func TestPostLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{depth: 5, sges: 2})
		p.net.Cut(addrA, addrB)
		n, err := p.a.qp.PostSend(make([]verbs.SendWR, 1))
		if n != 0 {
			t.Error("opcode 0 accepted")
		}
		wantErr(t, "opcode 0", err, verbs.ErrInvalid)
		wrs := make([]verbs.SendWR, 6)
		for i := range wrs {
			wrs[i].Opcode = verbs.WRSend
		}
		n, err = p.a.qp.PostSend(wrs)
		if n != 5 {
			t.Errorf("%d accepted", n)
		}
		wantErr(t, "sixth send", err, verbs.ErrNoMemory)
		n, err = p.a.qp.PostRecv(make([]verbs.RecvWR, 7))
		if n != 5 {
			t.Errorf("%d accepted", n)
		}
		wantErr(t, "sixth receive", err, verbs.ErrNoMemory)
		_, err = p.b.qp.PostRecv([]verbs.RecvWR{{SGList: make([]verbs.SGE, 3)}})
		wantErr(t, "three entries", err, verbs.ErrInvalid)
		_, err = p.b.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGList: make([]verbs.SGE, 3)}})
		wantErr(t, "three entries", err, verbs.ErrInvalid)
		_, err = p.b.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRAtomicFetchAndAdd, SGList: make([]verbs.SGE, 1)}})
		wantErr(t, "atomic of nothing", err, verbs.ErrInvalid)
		foreign, err := p.a.pd.AllocMW()
		check(t, err)
		_, err = p.b.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRBindMW, MW: foreign}})
		wantErr(t, "window of another device", err, verbs.ErrInvalid)
		for _, init := range []verbs.QPInitAttr{
			{Type: verbs.RC, SendCQ: p.a.cq},
			{Type: verbs.RC, SendCQ: p.a.cq, RecvCQ: p.b.cq},
			{Type: verbs.RC, SendCQ: p.a.cq, RecvCQ: p.a.cq, MaxSendWR: maxQPWR + 1},
			{Type: verbs.RC, SendCQ: p.a.cq, RecvCQ: p.a.cq, MaxRecvSGE: maxSGE + 1},
		} {
			_, err = p.a.pd.CreateQP(init)
			wantErr(t, "create QP", err, verbs.ErrInvalid)
		}
		_, err = p.a.pd.CreateQP(verbs.QPInitAttr{Type: verbs.UD, SendCQ: p.a.cq, RecvCQ: p.a.cq})
		wantErr(t, "UD", err, verbs.ErrUnsupported)
		_, err = p.a.pd.RegMR(nil, 0)
		wantErr(t, "no memory", err, verbs.ErrInvalid)
		_, err = p.a.pd.RegMR(make([]byte, 1), verbs.AccessRemoteWrite)
		wantErr(t, "remote without local write", err, verbs.ErrInvalid)
	})
}

// TestLifetimes: nothing that is in use can be freed, and nothing works after the device is
// closed.
func TestLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		s := p.a
		wantErr(t, "CQ of a QP", s.cq.Destroy(), verbs.ErrBusy)
		wantErr(t, "PD of a QP", s.pd.Dealloc(), verbs.ErrBusy)
		check(t, s.qp.Destroy())
		wantErr(t, "QP again", s.qp.Destroy(), verbs.ErrClosed)
		wantErr(t, "modify", s.qp.Modify(verbs.QPAttr{State: verbs.Err}), verbs.ErrClosed)
		_, err := s.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
		wantErr(t, "post", err, verbs.ErrClosed)
		_, err = s.qp.PostRecv([]verbs.RecvWR{{}})
		wantErr(t, "post receive", err, verbs.ErrClosed)
		gone, err := s.dev.CreateCQ(1, nil)
		check(t, err)
		check(t, gone.Destroy())
		for what, cqs := range map[string][2]verbs.CQ{"send": {gone, s.cq}, "receive": {s.cq, gone}} {
			_, err = s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cqs[0], RecvCQ: cqs[1]})
			wantErr(t, "QP whose "+what+" CQ is gone", err, verbs.ErrInvalid)
		}
		check(t, s.cq.Destroy())
		wantErr(t, "PD of an MR", s.pd.Dealloc(), verbs.ErrBusy)
		check(t, s.mr.Dereg())
		wantErr(t, "MR again", s.mr.Dereg(), verbs.ErrClosed)
		w, err := s.pd.AllocMW()
		check(t, err)
		wantErr(t, "PD of an MW", s.pd.Dealloc(), verbs.ErrBusy)
		check(t, w.Dealloc())
		wantErr(t, "MW again", w.Dealloc(), verbs.ErrClosed)
		check(t, s.pd.Dealloc())
		wantErr(t, "PD again", s.pd.Dealloc(), verbs.ErrClosed)
		_, err = s.pd.RegMR(s.buf, allAccess)
		wantErr(t, "MR of a PD that is gone", err, verbs.ErrClosed)
		_, err = s.pd.AllocMW()
		wantErr(t, "MW of a PD that is gone", err, verbs.ErrClosed)
		check(t, s.dev.Close())
		wantErr(t, "close again", s.dev.Close(), verbs.ErrClosed)
		_, err = s.dev.AllocPD()
		wantErr(t, "PD", err, verbs.ErrClosed)
		_, err = s.dev.CreateCQ(1, nil)
		wantErr(t, "CQ", err, verbs.ErrClosed)
		wantErr(t, "MAD", s.dev.SendMAD(addrB, make([]byte, madSize)), verbs.ErrClosed)
	})
}

// TestEmptyEntries: an entry of no bytes names no memory, so neither its address nor its key matters, wherever the data
// is taken from.
func TestEmptyEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		fill(p.a.buf[:8], 1)
		empty := []verbs.SGE{{Addr: 1, LKey: ^uint32(0)}}
		list := slices.Concat(empty, p.a.sge(0, 8), empty)
		for i, flags := range []verbs.SendFlags{0, verbs.SendInline} {
			p.b.recv(uint64(i), append([]verbs.SGE{{LKey: ^uint32(0)}}, p.b.sge(16*i, 16)...)...)
			p.a.post(verbs.SendWR{WRID: uint64(i), Opcode: verbs.WRSend, Flags: flags, SGList: list})
			p.a.want(uint64(i), verbs.WCSuccess)
			p.b.want(uint64(i), verbs.WCSuccess)
			if !bytes.Equal(p.b.buf[16*i:16*i+8], p.a.buf[:8]) {
				t.Errorf("flags %d: other data", flags)
			}
		}
	})
}

// TestClosedWithDevice: when the device is closed, all that was made on it is destroyed, and says so. A completion queue
// and a domain once said that the queue pairs, which nobody could destroy any more, were still using them.
func TestClosedWithDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		s := p.a
		unbound, err := s.pd.AllocMW()
		check(t, err)
		bound, err := s.pd.AllocMW()
		check(t, err)
		s.post(verbs.SendWR{Opcode: verbs.WRBindMW, MW: bound, Bind: verbs.MWBind{MR: s.mr, Addr: s.mr.Addr(), Length: 1}})
		s.want(0, verbs.WCSuccess)
		check(t, s.dev.Close())
		for what, destroy := range map[string]func() error{
			"QP": s.qp.Destroy, "CQ": s.cq.Destroy, "MR": s.mr.Dereg, "MW": unbound.Dealloc, "bound MW": bound.Dealloc, "PD": s.pd.Dealloc,
		} {
			wantErr(t, what, destroy(), verbs.ErrClosed)
		}
	})
}

// TestDestroyLeavesNothing: windows, paths and completions go with a queue pair.
func TestDestroyLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		p.net.Cut(addrA, addrB)
		p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 200<<10)},
			verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMARead, SGList: p.a.sge(0, 200<<10)})
		p.a.recv(3)
		time.Sleep(time.Millisecond)
		check(t, p.a.qp.Destroy())
		d := p.a.dev
		d.mu.Lock()
		if len(d.paths) != 0 || d.readBytes != 0 {
			t.Errorf("%d paths, %d bytes of READs", len(d.paths), d.readBytes)
		}
		d.mu.Unlock()
		time.Sleep(time.Hour)
		if len(p.a.got) != 0 {
			t.Errorf("completions %+v", p.a.got)
		}
	})
}

// TestQueuesApart: a queue pair uses both its completion queues, and leaves nothing in either.
func TestQueuesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPair(t, pairConfig{}).a
		var cqs [2]verbs.CQ
		for i := range cqs {
			var err error
			cqs[i], err = s.dev.CreateCQ(4, nil)
			check(t, err)
		}
		q, err := s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cqs[0], RecvCQ: cqs[1], MaxSendWR: 1, MaxRecvWR: 1, SQSigAll: true})
		check(t, err)
		for _, cq := range cqs {
			wantErr(t, "CQ of a QP", cq.Destroy(), verbs.ErrBusy)
		}
		check(t, q.Modify(verbs.QPAttr{State: verbs.Err}))
		_, err = q.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
		check(t, err)
		_, err = q.PostRecv([]verbs.RecvWR{{}})
		check(t, err)
		check(t, q.Destroy())
		for i, cq := range cqs {
			if n := cq.Poll(make([]verbs.WC, 4)); n != 0 {
				t.Errorf("CQ %d: %d completions of a queue pair that is gone", i, n)
			}
			check(t, cq.Destroy())
		}
	})
}

// TestResetLeavesThePath: a queue pair that is reset, and then destroyed, gives up its use of the path to its peer once:
// others still share that path, and its windows, with those made later.
func TestResetLeavesThePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		second := another(p.a, p.cfg)
		p.connect(second, another(p.b, p.cfg))
		check(t, second.qp.Modify(verbs.QPAttr{State: verbs.Reset}))
		check(t, second.qp.Destroy())
		third := another(p.a, p.cfg)
		p.connect(third, another(p.b, p.cfg))
		pathOf := func(q *qp) *path { return q.path }
		if inside(p.a, pathOf) != inside(third, pathOf) {
			t.Error("two queue pairs to one peer have a path each")
		}
	})
}

// TestFlush: in ERR everything is flushed in order, including what is posted later.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{unsignaled: true})
		p.net.Cut(addrA, addrB)
		for i := range 3 {
			p.a.post(verbs.SendWR{WRID: uint64(i), Opcode: verbs.WRSend})
			p.a.recv(uint64(10 + i))
		}
		check(t, p.a.qp.Modify(verbs.QPAttr{State: verbs.Err}))
		for _, id := range []uint64{0, 1, 2, 10, 11, 12} {
			p.a.want(id, verbs.WCWRFlushErr)
		}
		p.a.post(verbs.SendWR{WRID: 20, Opcode: verbs.WRSend})
		p.a.want(20, verbs.WCWRFlushErr)
		p.a.recv(21)
		p.a.want(21, verbs.WCWRFlushErr)
		synctest.Wait()
		if len(p.a.events) > 0 {
			t.Errorf("events %v", p.a.events)
		}
	})
}

// TestUnsignaled: only signaled sends complete, and the slots of the others are reused.
func TestUnsignaled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{unsignaled: true, depth: 4})
		for i := range 20 {
			wr := verbs.SendWR{WRID: uint64(i), Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 10), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()}
			p.a.post(wr, wr, wr)
			wr.Flags = verbs.SendSignaled
			p.a.post(wr)
			p.a.want(uint64(i), verbs.WCSuccess)
		}
	})
}

// TestCompletionQueueOverrun is fatal to the queue pair and to nothing else.
func TestCompletionQueueOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		small, err := p.a.dev.CreateCQ(2, nil)
		check(t, err)
		q, err := p.a.pd.CreateQP(verbs.QPInitAttr{
			Type: verbs.RC, SendCQ: small, RecvCQ: p.a.cq, MaxSendWR: 8, MaxRecvWR: 1, MaxSendSGE: 1,
			SQSigAll: true, EventHandler: p.a.onEvent,
		})
		check(t, err)
		p.a.qp, p.b.qp = q, p.b.newQP(p.cfg)
		p.connect(p.a, p.b)
		wr := verbs.SendWR{Opcode: verbs.WRRDMAWrite}
		p.a.post(wr, wr, wr, wr)
		synctest.Wait()
		if !p.a.hasEvent(verbs.EventQPFatal) || q.Query().State != verbs.Err || p.a.dev.Counters()[CQOverrun] == 0 {
			t.Errorf("events %v, state %v", p.a.events, q.Query().State)
		}
	})
}

// TestReceiveQueueOverrun: a message whose completion finds no room isn't acknowledged, as nobody ever learns of it, and
// what follows isn't executed. Linux's rxe falls silent, too.
func TestReceiveQueueOverrun(t *testing.T) {
	// smallQueue gives the device a queue pair with three receives, and room for the completion of one.
	smallQueue := func(t *testing.T, r *rawPeer) {
		small, err := r.dev.dev.CreateCQ(1, nil)
		check(t, err)
		r.dev.qp, err = r.dev.pd.CreateQP(verbs.QPInitAttr{
			Type: verbs.RC, SendCQ: r.dev.cq, RecvCQ: small, MaxRecvWR: 8, MaxRecvSGE: 1, EventHandler: r.dev.onEvent,
		})
		check(t, err)
		r.toRTR(pairConfig{}.withDefaults(), rawRate)
		for id := range uint64(3) {
			r.dev.recv(id, r.dev.sge(1000, 100)...)
		}
	}
	rawTest("behind a READ, which is answered", t, func(t *testing.T, r *rawPeer) {
		smallQueue(t, r)
		r.send(r.packet(wire.RCSendOnly, 100, 10), r.read(101, 0, 300), r.packet(wire.RCSendOnly, 103, 10))
		r.expect("ACK 100 msn 1", "RC_RDMA_READ_RESPONSE_FIRST 101 +256", "RC_RDMA_READ_RESPONSE_LAST 102 +44")
	})
	rawTest("", t, func(t *testing.T, r *rawPeer) {
		smallQueue(t, r)
		r.send(r.packet(wire.RCSendOnly, 100, 10), r.packet(wire.RCSendOnly, 101, 10), r.write(wire.RCWriteOnly, 102, 4, 4))
		r.expect("ACK 100 msn 1")
		r.send(r.packet(wire.RCSendOnly, 101, 10))
		r.expect()
		if !r.dev.hasEvent(verbs.EventQPFatal) || r.dev.qp.Query().State != verbs.Err || r.dev.dev.Counters()[CQOverrun] == 0 {
			t.Errorf("events %v, state %v", r.dev.events, r.dev.qp.Query().State)
		}
		if !bytes.Equal(r.dev.buf[:4], make([]byte, 4)) {
			t.Error("a WRITE behind it was executed")
		}
	})
}

// TestCommunicationEstablished is raised once, by the peer's first packet.
func TestCommunicationEstablished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		for range 3 {
			p.a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite})
			p.a.want(0, verbs.WCSuccess)
		}
		synctest.Wait()
		if len(p.b.events) != 1 || p.b.events[0] != verbs.EventCommEst {
			t.Errorf("events %v", p.b.events)
		}
	})
}

// TestManagementDatagrams between QP 1 and QP 1.
func TestManagementDatagrams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		p.net.SetFilter(func(d *simnet.Datagram) simnet.Action {
			if len(d.Payload) != 280 {
				t.Errorf("datagram of %d bytes, want 280", len(d.Payload))
			}
			var k wire.Packet
			check(t, wire.Parse(&k, d.Payload))
			if k.Opcode != wire.UDSendOnly || k.DestQP != 1 || k.DETH.QKey != wire.QP1QKey || k.DETH.SrcQP != 1 {
				t.Errorf("packet %+v", k)
			}
			return simnet.Action{}
		})
		got := 0
		p.b.dev.HandleMADs(func(src netip.Addr, mad []byte) {
			want := make([]byte, madSize)
			fill(want, got)
			if src != addrA || string(mad) != string(want) {
				t.Errorf("datagram %d from %v", got, src)
			}
			got++
			check(t, p.b.dev.SendMAD(src, mad)) // inside of the handler
		})
		mad := make([]byte, madSize)
		for i := range 100 {
			fill(mad, i)
			check(t, p.a.dev.SendMAD(addrB, mad))
		}
		synctest.Wait()
		if got != 100 || p.a.dev.Counters()[MADsDropped] != 100 {
			t.Errorf("%d of 100 arrived, %d came back", got, p.a.dev.Counters()[MADsDropped])
		}
		p.b.dev.HandleMADs(nil)
		check(t, p.a.dev.SendMAD(addrB, mad))
		synctest.Wait()
		if got != 100 {
			t.Error("called without a handler")
		}
		wantErr(t, "length", p.a.dev.SendMAD(addrB, mad[1:]), verbs.ErrInvalid)
		wantErr(t, "family", p.a.dev.SendMAD(netip.MustParseAddr("::1"), mad), verbs.ErrInvalid)
	})
}

// TestSegmentationRefused: a train that the kernel refuses is sent packet by packet.
func TestSegmentationRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		conn := p.a.dev.conn.(*simnet.Endpoint)
		operations[3].run(p, 50000)
		// Received one by one, the packets of trains have another Identification than 0.
		recovered := p.b.dev.Counters()[RecoveredICRC]
		conn.RefuseSegmentation()
		operations[3].run(p, 50000)
		c := p.a.dev.Counters()
		if conn.Segmentation() || c[Retransmitted] != 0 || c[SendErrors] != 0 || p.b.dev.Counters()[RecoveredICRC] != recovered {
			t.Error(dump(p.a.dev), dump(p.b.dev))
		}
	})
}

// TestRouteRefusesSegmentation: what one peer's route refuses is sent there packet by packet, and to others still in
// trains.
func TestRouteRefusesSegmentation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		far := p.newSide(netip.MustParseAddr("192.0.2.77"))
		defer far.dev.Close()
		toFar := p.a.newQP(p.cfg)
		p.ready(toFar, far.dev, far.qp)
		p.ready(far.qp, p.a.dev, toFar)
		conn := p.a.dev.conn.(*simnet.Endpoint)
		conn.RefuseSegmentationTo(p.a.dev.peer(p.b.dev.self.Addr()))
		const n = 50000
		for id, q := range []verbs.QP{p.a.qp, toFar, p.a.qp} {
			to := p.b
			if q == toFar {
				to = far
			}
			fill(p.a.buf[:n], id+1)
			_, err := q.PostSend([]verbs.SendWR{{
				WRID: uint64(id), Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, n), RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey(),
			}})
			check(t, err)
			p.a.want(uint64(id), verbs.WCSuccess)
			if !bytes.Equal(to.buf[:n], p.a.buf[:n]) {
				t.Errorf("WRITE %d: other data", id)
			}
		}
		// Received one by one, the packets of trains have another Identification than 0.
		refused, other := p.b.dev.Counters()[RecoveredICRC], far.dev.Counters()[RecoveredICRC]
		c := p.a.dev.Counters()
		if !conn.Segmentation() || refused != 0 || other == 0 || c[Retransmitted] != 0 || c[SendErrors] != 0 {
			t.Errorf("segmentation %v; %d packets of trains here, %d at the other; %s", conn.Segmentation(), refused, other, dump(p.a.dev))
		}
	})
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{Engines: 9}, {Engine: 1}, {Engines: 2, Engine: 2}} {
		wantErr(t, "config", c.Validate(), verbs.ErrInvalid)
	}
	for _, c := range []struct {
		iface int
		want  verbs.MTU
	}{{1500, verbs.MTU1024}, {9000, verbs.MTU4096}, {65536, verbs.MTU4096}, {4191, verbs.MTU2048}, {4192, verbs.MTU4096}} {
		if got, err := fitMTU(verbs.MTU4096, c.iface); got != c.want || err != nil {
			t.Errorf("interface MTU %d: %v, %v", c.iface, got, err)
		}
	}
	_, err := fitMTU(verbs.MTU4096, 300)
	wantErr(t, "interface MTU 300", err, verbs.ErrUnsupported)
}

// TestErrorsNameTheDevice: an error names its device, by the address that distinguishes devices.
func TestErrorsNameTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		for _, s := range []*side{p.a, p.b} {
			for what, err := range map[string]error{
				"a verb of the device's": errOf(s.pd.RegMR(nil, 0)), "one of its queue pair's": s.qp.Modify(verbs.QPAttr{State: verbs.RTS}),
			} {
				if err == nil || !strings.Contains(err.Error(), s.dev.attr.Addr.String()+": ") {
					t.Errorf("%s: %v, want %v in it", what, err, s.dev.attr.Addr)
				}
			}
		}
	})
}

func errOf[T any](_ T, err error) error { return err }

func TestCounterNames(t *testing.T) {
	seen := map[string]bool{}
	for c := range NumCounters {
		if c.String() == "" || c.Help() == "" || seen[c.String()] {
			t.Errorf("counter %d: %q, %q", c, c, c.Help())
		}
		seen[c.String()] = true
	}
}

func isFull(err error) bool { return errors.Is(err, verbs.ErrNoMemory) }

// TestMaxQP: a device has as many queue pairs as it says, and one that is destroyed makes room.
func TestMaxQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		s := p.a
		create := func() (verbs.QP, error) {
			return s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq})
		}
		most := s.dev.Attr().MaxQP
		for range most - 1 { // one is the pair's
			_, err := create()
			check(t, err)
		}
		_, err := create()
		wantErr(t, "one more", err, verbs.ErrNoMemory)
		check(t, s.qp.Destroy())
		_, err = create()
		check(t, err)
		_, err = create()
		wantErr(t, "one more again", err, verbs.ErrNoMemory)
	})
}

// TestNumberOfQueuePairRests: a number that was used isn't used again soon, even if it is drawn again; nor is one whose
// place in the table is taken.
func TestNumberOfQueuePairRests(t *testing.T) {
	table := newQPTable(&Config{})
	draw := func(nums ...uint32) {
		table.random.left = 4 * len(nums)
		for i, n := range nums {
			binary.LittleEndian.PutUint32(table.random.buf[4*(len(nums)-1-i):], n)
		}
	}
	draw(7)
	old := new(qp)
	table.add(old)
	table.remove(old)
	draw(7, 9)
	if q := new(qp); !table.add(q) || old.num != 7 || q.num != 9 || table.lookup(9) != q || table.lookup(7) != nil {
		t.Errorf("number %d after %d", q.num, old.num)
	}
	draw(9|1<<qpIndexBits, 11)
	if q := new(qp); !table.add(q) || q.num != 11 {
		t.Errorf("number %#x, whose place is that of 9", q.num)
	}
}

// TestWriteCountedOnce: a WRITE counts as one request at a responder of our kind, though its packets are WRITEs of
// their own. Any other responder counts those.
func TestWriteCountedOnce(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{foreign: foreign})
			var want uint64
			for i, n := range []int{0, 1, 1024, 1025, 5000} {
				if want++; foreign {
					want += uint64(max(n-1, 0) / 1024)
				}
				p.a.post(verbs.SendWR{WRID: uint64(i), Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, n), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
				p.a.want(uint64(i), verbs.WCSuccess)
				if got := p.b.dev.Counters()[RxWriteRequests]; got != want {
					t.Errorf("foreign %v, %d bytes: %d requests, want %d", foreign, n, got, want)
				}
			}
		})
	}
}
