package roce

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
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

// TestMemoryWindow: a window's key opens its range to its queue pair's peer, from the bind to
// the invalidation, and never again.
func TestMemoryWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		w, err := p.b.pd.AllocMW()
		check(t, err)
		bind := func(off, n int, access verbs.Access) uint32 {
			key := w.RKey()
			p.b.post(verbs.SendWR{
				WRID: 1, Opcode: verbs.WRBindMW, MW: w,
				Bind: verbs.MWBind{MR: p.b.mr, Addr: p.b.mr.Addr() + uint64(off), Length: uint64(n), Access: access},
			})
			p.b.want(1, verbs.WCSuccess)
			if w.RKey() != key {
				t.Error("binding changed the key")
			}
			return key
		}
		write := func(off, n int, key uint32) {
			p.a.post(verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, n), RemoteAddr: p.b.mr.Addr() + uint64(off), RKey: key})
		}
		fill(p.a.buf, 1)
		keys := map[uint32]bool{}
		for i := range 50 {
			key := bind(1000*i, 1000, verbs.AccessRemoteWrite)
			if keys[key] || key == 0 {
				t.Fatalf("key %#x again", key)
			}
			keys[key] = true
			write(1000*i, 1000, key)
			p.a.want(2, verbs.WCSuccess)
			if i%2 == 0 {
				p.b.post(verbs.SendWR{WRID: 3, Opcode: verbs.WRLocalInv, InvalidateRKey: key})
				p.b.want(3, verbs.WCSuccess)
			} else {
				p.b.recv(4)
				p.a.post(verbs.SendWR{WRID: 5, Opcode: verbs.WRSendWithInv, InvalidateRKey: key})
				p.a.want(5, verbs.WCSuccess)
				if wc := p.b.want(4, verbs.WCSuccess); wc.InvalidatedRKey != key {
					t.Errorf("completion %+v", wc)
				}
			}
		}
		key := bind(0, 100, verbs.AccessRemoteWrite)
		wantErr(t, "deregister under a window", p.b.mr.Dereg(), verbs.ErrBusy)
		p.b.post(verbs.SendWR{WRID: 3, Opcode: verbs.WRLocalInv, InvalidateRKey: key})
		p.b.want(3, verbs.WCSuccess)
		write(0, 1, key)
		p.a.want(2, verbs.WCRemAccessErr)
		check(t, w.Dealloc())
		wantErr(t, "again", w.Dealloc(), verbs.ErrClosed)
	})
}

// TestWindowOutlivesItsQueuePair: a binding ends with its queue pair: the region may go then, and the window be bound again.
func TestWindowOutlivesItsQueuePair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		m := p.region(p.b.pd, allAccess)
		wr := p.bind(p.b.pd, m, m.Addr(), 10, verbs.AccessRemoteRead)
		p.b.post(wr)
		p.b.want(0, verbs.WCSuccess)
		old := wr.MW.RKey()
		check(t, p.b.qp.Destroy())
		check(t, m.Dereg())
		p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
		p.connect(p.a, p.b)
		wr.Bind.MR, wr.Bind.Addr = p.b.mr, p.b.mr.Addr()
		p.b.post(wr)
		p.b.want(0, verbs.WCSuccess)
		p.a.post(p.readFrom(p.b.mr.Addr(), 10, wr.MW.RKey()))
		p.a.want(0, verbs.WCSuccess)
		p.a.post(p.readFrom(p.b.mr.Addr(), 10, old))
		p.a.want(0, verbs.WCRemAccessErr)
	})
}

// TestBindOfAnEndedKey: a window is bound under the key that it had when that was posted, or not at all.
func TestBindOfAnEndedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		wr := p.bind(p.b.pd, p.b.mr, p.b.mr.Addr(), 10, verbs.AccessRemoteRead)
		p.b.post(wr, verbs.SendWR{WRID: 1, Opcode: verbs.WRLocalInv, InvalidateRKey: wr.MW.RKey()}, wr)
		p.b.want(0, verbs.WCSuccess)
		p.b.want(1, verbs.WCSuccess)
		p.b.want(0, verbs.WCMWBindErr)
	})
}

// TestResetEndsOwnWindows: a queue pair that is reset ends the bindings that it has, whichever ended before, and looks at no
// other key of the device, of which there may be a hundred thousand.
func TestResetEndsOwnWindows(t *testing.T) {
	const windows = 5
	for ended := range windows {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{})
			foreign := p.foreignWindow(p.a)
			var keys []uint32
			for range windows {
				wr := p.bind(p.a.pd, p.a.mr, p.a.mr.Addr(), 10, verbs.AccessRemoteRead)
				p.a.post(wr)
				p.a.want(0, verbs.WCSuccess)
				keys = append(keys, wr.MW.RKey())
			}
			p.a.post(verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: keys[ended]})
			p.a.want(0, verbs.WCSuccess)
			inside(p.a, func(q *qp) any {
				untouchable := &region{key: q.d.rkeys.reserve(), pd: q.pd, qp: q} // without a window whose binding could end
				q.d.rkeys.open(untouchable)
				return nil
			})
			check(t, p.a.qp.Modify(verbs.QPAttr{State: verbs.Reset}))
			opens := func(key uint32) bool {
				return inside(p.a, func(q *qp) bool { return q.d.rkeys.lookup(key) != nil })
			}
			for i, key := range keys {
				if opens(key) {
					t.Errorf("the key of window %d still opens something", i)
				}
			}
			if !opens(foreign) {
				t.Error("the binding of another queue pair has ended")
			}
			if n := inside(p.a, func(*qp) int { return p.a.mr.(*mr).windows }); n != 1 {
				t.Errorf("%d windows are bound to the region, want that of the other queue pair", n)
			}
		})
	}
}

// TestReadOnlyWindow: a window that is only read through needs no memory that can be written.
func TestReadOnlyWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		m := p.region(p.b.pd, verbs.AccessMWBind)
		wr := p.bind(p.b.pd, m, m.Addr(), 10, verbs.AccessRemoteRead)
		p.b.post(wr)
		p.b.want(0, verbs.WCSuccess)
		p.a.post(p.readFrom(m.Addr(), 10, wr.MW.RKey()))
		p.a.want(0, verbs.WCSuccess)
	})
}

// TestWindowFaults: outside of its range, with another access or on another queue pair a
// window's key opens nothing.
func TestWindowFaults(t *testing.T) {
	for name, wr := range map[string]func(p *pair, key uint32) verbs.SendWR{
		"before": func(p *pair, key uint32) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 2), RemoteAddr: p.b.mr.Addr() + 99, RKey: key}
		},
		"behind": func(p *pair, key uint32) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 2), RemoteAddr: p.b.mr.Addr() + 199, RKey: key}
		},
		"access": func(p *pair, key uint32) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: p.a.sge(0, 2), RemoteAddr: p.b.mr.Addr() + 100, RKey: key}
		},
		"other queue pair": func(p *pair, key uint32) verbs.SendWR {
			p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
			p.connect(p.a, p.b)
			return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 2), RemoteAddr: p.b.mr.Addr() + 100, RKey: key}
		},
		"queue pair destroyed": func(p *pair, key uint32) verbs.SendWR {
			check(p.t, p.b.qp.Destroy())
			p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
			p.connect(p.a, p.b)
			return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 2), RemoteAddr: p.b.mr.Addr() + 100, RKey: key}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, pairConfig{})
				w, err := p.b.pd.AllocMW()
				check(t, err)
				key := w.RKey()
				p.b.post(verbs.SendWR{
					WRID: 1, Opcode: verbs.WRBindMW, MW: w,
					Bind: verbs.MWBind{MR: p.b.mr, Addr: p.b.mr.Addr() + 100, Length: 100, Access: verbs.AccessRemoteWrite},
				})
				p.b.want(1, verbs.WCSuccess)
				p.a.post(wr(p, key))
				p.a.want(0, verbs.WCRemAccessErr)
			})
		})
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
				a := attrs[to]
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

// TestPostLimits: queues and lists have the size that was asked for, and an error says how
// many requests went before.
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
		check(t, s.cq.Destroy())
		wantErr(t, "PD of an MR", s.pd.Dealloc(), verbs.ErrBusy)
		check(t, s.mr.Dereg())
		wantErr(t, "MR again", s.mr.Dereg(), verbs.ErrClosed)
		check(t, s.pd.Dealloc())
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

// TestFlush: in ERR everything is flushed in order, also what is posted later.
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
		if !p.a.hasEvent(verbs.EventQPLastWQE) || p.a.hasEvent(verbs.EventQPFatal) {
			t.Errorf("events %v", p.a.events)
		}
	})
}

// TestUnsignaled: only signaled sends complete, and the slots of the others come back.
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

// TestRKeyTable compares the table with a map.
func TestRKeyTable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	table := newRKeyTable()
	model := map[uint32]*region{}
	var keys []uint32
	for i := range 40000 {
		if len(keys) < 1500 && r.IntN(2) == 0 || len(keys) == 0 {
			reg := &region{key: table.reserve()}
			if r.IntN(2) == 0 {
				// As a collision that randomness would rarely make.
				if k := reg.key&^0xffff | 0x1234 + r.Uint32N(4); table.lookup(k) == nil {
					table.remove(reg.key)
					table.take(k)
					reg.key = k
				}
			}
			if table.lookup(reg.key) != nil {
				t.Fatalf("step %d: key %#x opens something already", i, reg.key)
			}
			table.open(reg)
			model[reg.key] = reg
			keys = append(keys, reg.key)
		} else {
			j := r.IntN(len(keys))
			table.remove(keys[j])
			delete(model, keys[j])
			keys[j] = keys[len(keys)-1]
			keys = keys[:len(keys)-1]
		}
		if k := r.Uint32(); table.lookup(k) != model[k] {
			t.Fatalf("step %d: key %#x", i, k)
		}
		if len(keys) > 0 {
			if k := keys[r.IntN(len(keys))]; table.lookup(k) != model[k] {
				t.Fatalf("step %d: key %#x", i, k)
			}
		}
	}
	if table.used != len(model) {
		t.Errorf("%d entries, want %d", table.used, len(model))
	}
}

// TestWindowKeysDiffer: no two windows wait with the same key to be bound, even where the generator
// says the same twice.
func TestWindowKeysDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		random := &p.a.dev.rkeys.random
		repeat := func() {
			for i := range random.buf {
				random.buf[i] = 0x11
			}
			random.left = len(random.buf)
		}
		repeat()
		a, b := bindWindow(p.a, 0, 64), bindWindow(p.a, 64, 64)
		repeat()
		for id, key := range []uint32{a, b} { // each draws its next key
			p.a.post(verbs.SendWR{WRID: uint64(id), Opcode: verbs.WRLocalInv, InvalidateRKey: key})
			p.a.want(uint64(id), verbs.WCSuccess)
		}
		c := bindWindow(p.a, 0, 64)
		if a == b || c == a || c == b {
			t.Errorf("keys %#x, %#x, %#x", a, b, c)
		}
	})
}

func TestLKeyReuse(t *testing.T) {
	var table lkeyTable
	a := new(mr)
	table.insert(a)
	old := a.lkey
	table.remove(old)
	b := new(mr)
	table.insert(b)
	if table.lookup(old) != nil || table.lookup(b.lkey) != b || old>>8 != b.lkey>>8 {
		t.Errorf("keys %#x, %#x", old, b.lkey)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{MTU: 6}, {MaxWindow: 1}, {MaxWindow: -1}} {
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

// TestErrorsNameTheDevice: an error says of which device it is, by the address that tells devices apart.
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

func BenchmarkRKeyLookup(b *testing.B) {
	table := newRKeyTable()
	var keys [1024]uint32
	for i := range keys {
		r := &region{key: table.reserve()}
		table.open(r)
		keys[i] = r.key
	}
	b.ReportAllocs()
	for i := range b.N {
		if table.lookup(keys[i&1023]) == nil {
			b.Fatal("lost")
		}
	}
}

func BenchmarkWindowBind(b *testing.B) {
	table := newRKeyTable()
	var regions [256]region
	b.ReportAllocs()
	for i := range b.N {
		r := &regions[i&255]
		if r.key != 0 {
			table.remove(r.key)
		}
		r.key = table.reserve()
		table.open(r)
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

// TestNumberOfQueuePairRests: a number that was used isn't used again soon, though chance gives it.
func TestNumberOfQueuePairRests(t *testing.T) {
	table := newQPTable()
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
}

// TestWriteCountedOnce: a WRITE counts as one request with a responder of our kind, though its packets are WRITEs of
// their own. Any other counts those.
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
