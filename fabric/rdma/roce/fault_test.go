package roce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// remoteFault is a request that the responder must refuse.
type remoteFault struct {
	name   string
	access verbs.Access // of the queue pairs, if it isn't everything
	wr     func(p *pair) verbs.SendWR
	status verbs.WCStatus // corresponding to the NAK
}

// everything is the access that queue pairs allow unless a test says otherwise.
const everything = verbs.Access(0)

// writeTo returns a WRITE to b's memory.
func (p *pair) writeTo(addr uint64, n int, key uint32) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, n), RemoteAddr: addr, RKey: key}
}

// readFrom returns a READ from b's memory.
func (p *pair) readFrom(addr uint64, n int, key uint32) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: p.a.sge(0, n), RemoteAddr: addr, RKey: key}
}

// region is memory in addition to that of the pair.
func (p *pair) region(pd verbs.PD, access verbs.Access) verbs.MR {
	m, err := pd.RegMR(make([]byte, 8192), access)
	check(p.t, err)
	return m
}

// otherPD is a protection domain of b, not that of its queue pair.
func (p *pair) otherPD() verbs.PD {
	pd, err := p.b.dev.AllocPD()
	check(p.t, err)
	return pd
}

var writeFaults = []remoteFault{
	{"write, unknown key", everything, func(p *pair) verbs.SendWR { return p.writeTo(p.b.mr.Addr(), 10, p.b.mr.RKey()+1) }, verbs.WCRemAccessErr},
	{"write, key 0", everything, func(p *pair) verbs.SendWR { return p.writeTo(p.b.mr.Addr(), 10, 0) }, verbs.WCRemAccessErr},
	{"write, L_Key as R_Key", everything, func(p *pair) verbs.SendWR { return p.writeTo(p.b.mr.Addr(), 10, p.b.mr.LKey()) }, verbs.WCRemAccessErr},
	{"write, before the region", everything, func(p *pair) verbs.SendWR { return p.writeTo(p.b.mr.Addr()-1, 10, p.b.mr.RKey()) }, verbs.WCRemAccessErr},
	{"write, one byte behind", everything, func(p *pair) verbs.SendWR {
		return p.writeTo(p.b.mr.Addr()+uint64(len(p.b.buf))-9, 10, p.b.mr.RKey())
	}, verbs.WCRemAccessErr},
	{"write, address wraps", everything, func(p *pair) verbs.SendWR { return p.writeTo(^uint64(0)-4, 10, p.b.mr.RKey()) }, verbs.WCRemAccessErr},
	{"write, whole message is checked first", everything, func(p *pair) verbs.SendWR {
		wr := p.writeTo(p.b.mr.Addr()+uint64(len(p.b.buf))-8192, 8193, p.b.mr.RKey())
		wr.Opcode = verbs.WRRDMAWriteWithImm // which is one message for any peer
		return wr
	}, verbs.WCRemAccessErr},
	{"write, other domain", everything, func(p *pair) verbs.SendWR {
		m := p.region(p.otherPD(), allAccess)
		return p.writeTo(m.Addr(), 10, m.RKey())
	}, verbs.WCRemAccessErr},
	{"write, read-only region", everything, func(p *pair) verbs.SendWR {
		m := p.region(p.b.pd, verbs.AccessRemoteRead)
		return p.writeTo(m.Addr(), 10, m.RKey())
	}, verbs.WCRemAccessErr},
	{"write, deregistered", everything, func(p *pair) verbs.SendWR {
		m := p.region(p.b.pd, allAccess)
		check(p.t, m.Dereg())
		return p.writeTo(m.Addr(), 10, m.RKey())
	}, verbs.WCRemAccessErr},
	{"write, not allowed on the QP", verbs.AccessRemoteRead, func(p *pair) verbs.SendWR {
		return p.writeTo(p.b.mr.Addr(), 10, p.b.mr.RKey())
	}, verbs.WCRemInvReqErr},
}

var readFaults = []remoteFault{
	{"read, unknown key", everything, func(p *pair) verbs.SendWR { return p.readFrom(p.b.mr.Addr(), 10, p.b.mr.RKey()+1) }, verbs.WCRemAccessErr},
	{"read, one byte behind", everything, func(p *pair) verbs.SendWR {
		return p.readFrom(p.b.mr.Addr()+uint64(len(p.b.buf))-9, 10, p.b.mr.RKey())
	}, verbs.WCRemAccessErr},
	{"read, write-only region", everything, func(p *pair) verbs.SendWR {
		m := p.region(p.b.pd, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		return p.readFrom(m.Addr(), 10, m.RKey())
	}, verbs.WCRemAccessErr},
	{"read, not allowed on the QP", verbs.AccessRemoteWrite, func(p *pair) verbs.SendWR {
		return p.readFrom(p.b.mr.Addr(), 10, p.b.mr.RKey())
	}, verbs.WCRemInvReqErr},
}

var atomicFaults = []remoteFault{
	{"atomic, misaligned", everything, func(p *pair) verbs.SendWR {
		return p.addTo(p.b.mr.Addr()&^7+9, p.b.mr.RKey())
	}, verbs.WCRemInvReqErr},
	{"atomic, unknown key", everything, func(p *pair) verbs.SendWR {
		return p.addTo(p.b.mr.Addr()&^7+8, 0)
	}, verbs.WCRemAccessErr},
	{"atomic, behind the region", everything, func(p *pair) verbs.SendWR {
		return p.addTo(p.b.mr.Addr()+uint64(len(p.b.buf)), p.b.mr.RKey())
	}, verbs.WCRemAccessErr},
	{"atomic, region for READ and WRITE", everything, func(p *pair) verbs.SendWR {
		m := p.region(p.b.pd, allAccess&^verbs.AccessRemoteAtomic)
		return p.addTo(m.Addr(), m.RKey())
	}, verbs.WCRemAccessErr},
	{"atomic, not allowed on the QP", verbs.AccessRemoteRead | verbs.AccessRemoteWrite, func(p *pair) verbs.SendWR {
		return p.addTo(p.b.mr.Addr(), p.b.mr.RKey())
	}, verbs.WCRemInvReqErr},
}

// addTo returns an atomic on b's memory.
func (p *pair) addTo(addr uint64, key uint32) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, SGList: p.a.sge(0, 8), RemoteAddr: addr, RKey: key, CompareAdd: 1}
}

// foreignWindow returns the key of a window of s that is bound to a queue pair other than the pair's.
func (p *pair) foreignWindow(s *side) uint32 {
	wr := p.bind(s.pd, s.mr, s.mr.Addr(), 10, verbs.AccessRemoteRead)
	a, b := p.a.qp, p.b.qp
	p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
	p.connect(p.a, p.b)
	s.post(wr)
	s.want(0, verbs.WCSuccess)
	p.a.qp, p.b.qp = a, b
	return wr.MW.RKey()
}

var sendFaults = []remoteFault{
	{"send, longer than the receive", everything, func(p *pair) verbs.SendWR {
		p.b.recv(1, p.b.sge(0, 99)...)
		return verbs.SendWR{Opcode: verbs.WRSend, SGList: p.a.sge(0, 100)}
	}, verbs.WCRemInvReqErr},
	{"send, broken receive", everything, func(p *pair) verbs.SendWR {
		p.b.recv(1, verbs.SGE{Addr: p.b.mr.Addr(), Length: 100, LKey: p.b.mr.LKey() + 1})
		return verbs.SendWR{Opcode: verbs.WRSend, SGList: p.a.sge(0, 100)}
	}, verbs.WCRemOpErr},
	{"send, receive outside of its region", everything, func(p *pair) verbs.SendWR {
		p.b.recv(1, verbs.SGE{Addr: p.b.mr.Addr() + uint64(len(p.b.buf)) - 50, Length: 100, LKey: p.b.mr.LKey()})
		return verbs.SendWR{Opcode: verbs.WRSend, SGList: p.a.sge(0, 100)}
	}, verbs.WCRemOpErr},
	{"send with invalidate, unknown key", everything, func(p *pair) verbs.SendWR {
		p.b.recv(1, p.b.sge(0, 100)...)
		return verbs.SendWR{Opcode: verbs.WRSendWithInv, SGList: p.a.sge(0, 10), InvalidateRKey: 12345}
	}, verbs.WCRemAccessErr},
	{"send with invalidate, window of another queue pair", everything, func(p *pair) verbs.SendWR {
		p.b.recv(1, p.b.sge(0, 100)...)
		return verbs.SendWR{Opcode: verbs.WRSendWithInv, SGList: p.a.sge(0, 10), InvalidateRKey: p.foreignWindow(p.b)}
	}, verbs.WCRemAccessErr},
	{"send with invalidate, memory region", everything, func(p *pair) verbs.SendWR {
		p.b.recv(1, p.b.sge(0, 100)...)
		return verbs.SendWR{Opcode: verbs.WRSendWithInv, SGList: p.a.sge(0, 10), InvalidateRKey: p.b.mr.RKey()}
	}, verbs.WCRemAccessErr},
}

// TestRemoteFaults: each request that the responder must refuse ends with the status that its NAK stands for and kills
// the connection, with an event on either side.
func TestRemoteFaults(t *testing.T) {
	for _, c := range slices.Concat(writeFaults, readFaults, atomicFaults, sendFaults) {
		for _, foreign := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/foreign=%v", c.name, foreign), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { c.test(t, foreign) })
			})
		}
	}
}

func (c remoteFault) test(t *testing.T, foreign bool) {
	p := newPair(t, pairConfig{access: c.access, foreign: foreign})
	before := slices.Clone(p.b.buf)
	wr := c.wr(p)
	if wr.Opcode == verbs.WRRDMAWrite || wr.Opcode == verbs.WRRDMAWriteWithImm {
		fill(p.a.buf, 1)
	}
	wr.WRID = 1
	p.a.post(verbs.SendWR{WRID: 0, Opcode: verbs.WRRDMAWrite}, wr, verbs.SendWR{WRID: 2, Opcode: verbs.WRSend})
	if c.access != verbs.AccessRemoteRead {
		p.a.want(0, verbs.WCSuccess)
	} else {
		wr.WRID = 0
	}
	p.a.want(wr.WRID, c.status)
	p.a.wait(int(2 - wr.WRID))
	synctest.Wait()
	if !p.a.hasEvent(verbs.EventQPFatal) {
		t.Errorf("requester's events %v", p.a.events)
	}
	if !p.b.hasEvent(verbs.EventQPAccess) && !p.b.hasEvent(verbs.EventQPFatal) {
		t.Errorf("responder's events %v", p.b.events)
	}
	for _, s := range []*side{p.a, p.b} {
		if st := s.qp.Query().State; st != verbs.Err {
			t.Errorf("state %v", st)
		}
	}
	if !slices.Equal(before, p.b.buf) {
		t.Error("memory was written")
	}
}

// TestReceiveFaults: the receive at fault completes with a status of its own.
func TestReceiveFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		p.b.recv(1, p.b.sge(0, 9)...)
		p.b.recv(2, p.b.sge(0, 9)...)
		p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: p.a.sge(0, 10)})
		p.b.want(1, verbs.WCLocLenErr)
		p.b.want(2, verbs.WCWRFlushErr)
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		p.b.recv(1, verbs.SGE{Addr: p.b.mr.Addr(), Length: 10, LKey: 77})
		p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: p.a.sge(0, 10)})
		p.b.want(1, verbs.WCLocProtErr)
	})
}

// localFault is a request that the requester's own side must refuse.
type localFault struct {
	name   string
	wr     func(p *pair) verbs.SendWR
	status verbs.WCStatus
}

var localFaults = []localFault{
	{"unknown L_Key", func(p *pair) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{{Addr: p.a.mr.Addr(), Length: 5, LKey: 99}}}
	}, verbs.WCLocProtErr},
	{"L_Key behind the last", func(p *pair) verbs.SendWR {
		e := p.a.sge(0, 5)
		e[0].LKey += 1 << 8
		return verbs.SendWR{Opcode: verbs.WRSend, SGList: e}
	}, verbs.WCLocProtErr},
	{"L_Key of another domain", func(p *pair) verbs.SendWR {
		pd, err := p.a.dev.AllocPD()
		check(p.t, err)
		m := p.region(pd, allAccess)
		return verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{{Addr: m.Addr(), Length: 5, LKey: m.LKey()}}}
	}, verbs.WCLocProtErr},
	{"outside of the region", func(p *pair) verbs.SendWR {
		e := p.a.sge(0, 5)
		e[0].Addr--
		return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: e, RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()}
	}, verbs.WCLocProtErr},
	{"second entry, in a later packet", func(p *pair) verbs.SendWR {
		e := append(p.a.sge(0, 5000), p.a.sge(0, 5000)...)
		e[1].LKey++
		return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: e, RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()}
	}, verbs.WCLocProtErr},
	{"READ into memory without local write", func(p *pair) verbs.SendWR {
		m, err := p.a.pd.RegMR(make([]byte, 100), verbs.AccessRemoteRead)
		check(p.t, err)
		return verbs.SendWR{
			Opcode: verbs.WRRDMARead, SGList: []verbs.SGE{{Addr: m.Addr(), Length: 100, LKey: m.LKey()}},
			RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey(),
		}
	}, verbs.WCLocProtErr},
	{"invalidate what isn't there", func(p *pair) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: 1}
	}, verbs.WCLocQPOpErr},
}

// bind binds length bytes of m, from addr on, to a window of pd.
func (p *pair) bind(pd verbs.PD, m verbs.MR, addr uint64, length int, access verbs.Access) verbs.SendWR {
	w, err := pd.AllocMW()
	check(p.t, err)
	return verbs.SendWR{Opcode: verbs.WRBindMW, MW: w, Bind: verbs.MWBind{MR: m, Addr: addr, Length: uint64(length), Access: access}}
}

var windowFaults = []localFault{
	{"invalidate a window of another queue pair", func(p *pair) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: p.foreignWindow(p.a)}
	}, verbs.WCLocQPOpErr},
	{"bind outside of the region", func(p *pair) verbs.SendWR {
		return p.bind(p.a.pd, p.a.mr, p.a.mr.Addr()+1, len(p.a.buf), 0)
	}, verbs.WCMWBindErr},
	{"bind more than the region", func(p *pair) verbs.SendWR {
		return p.bind(p.a.pd, p.a.mr, p.a.mr.Addr(), len(p.a.buf)+1, 0)
	}, verbs.WCMWBindErr},
	{"bind nothing", func(p *pair) verbs.SendWR {
		return p.bind(p.a.pd, p.a.mr, p.a.mr.Addr(), 0, 0)
	}, verbs.WCMWBindErr},
	{"bind without AccessMWBind", func(p *pair) verbs.SendWR {
		m := p.region(p.a.pd, allAccess&^verbs.AccessMWBind)
		return p.bind(p.a.pd, m, m.Addr(), 10, 0)
	}, verbs.WCMWBindErr},
	{"bind for WRITE without local write", func(p *pair) verbs.SendWR {
		m := p.region(p.a.pd, verbs.AccessMWBind|verbs.AccessRemoteRead)
		return p.bind(p.a.pd, m, m.Addr(), 10, verbs.AccessRemoteWrite)
	}, verbs.WCMWBindErr},
	{"bind for atomics without local write", func(p *pair) verbs.SendWR {
		m := p.region(p.a.pd, verbs.AccessMWBind|verbs.AccessRemoteRead)
		return p.bind(p.a.pd, m, m.Addr(), 10, verbs.AccessRemoteAtomic)
	}, verbs.WCMWBindErr},
	{"bind a region of another domain", func(p *pair) verbs.SendWR {
		pd, err := p.a.dev.AllocPD()
		check(p.t, err)
		m := p.region(pd, allAccess)
		return p.bind(p.a.pd, m, m.Addr(), 10, 0)
	}, verbs.WCMWBindErr},
	{"bind by a window of another domain", func(p *pair) verbs.SendWR {
		pd, err := p.a.dev.AllocPD()
		check(p.t, err)
		return p.bind(pd, p.a.mr, p.a.mr.Addr(), 10, 0)
	}, verbs.WCMWBindErr},
	{"bind a region of another device", func(p *pair) verbs.SendWR {
		return p.bind(p.a.pd, p.b.mr, p.b.mr.Addr(), 10, 0)
	}, verbs.WCMWBindErr},
	{"bind no region", func(p *pair) verbs.SendWR {
		return p.bind(p.a.pd, nil, 0, 10, 0)
	}, verbs.WCMWBindErr},
	{"bind a region that is deregistered", func(p *pair) verbs.SendWR {
		m := p.region(p.a.pd, allAccess)
		check(p.t, m.Dereg())
		return p.bind(p.a.pd, m, m.Addr(), 10, 0)
	}, verbs.WCMWBindErr},
	{"bind a window that is deallocated", func(p *pair) verbs.SendWR {
		wr := p.bind(p.a.pd, p.a.mr, p.a.mr.Addr(), 10, 0)
		check(p.t, wr.MW.Dealloc())
		return wr
	}, verbs.WCMWBindErr},
	{"bind a window that is bound", func(p *pair) verbs.SendWR {
		wr := p.bind(p.a.pd, p.a.mr, p.a.mr.Addr(), 10, verbs.AccessRemoteRead)
		p.a.post(wr)
		p.a.want(0, verbs.WCSuccess)
		return wr
	}, verbs.WCMWBindErr},
}

// TestLocalFaults: an error of the requester's side takes effect when everything before it is complete: at once if that
// is nothing.
func TestLocalFaults(t *testing.T) {
	for _, c := range slices.Concat(localFaults, windowFaults) {
		t.Run(c.name, func(t *testing.T) { synctest.Test(t, c.test) })
	}
}

func (c localFault) test(t *testing.T) {
	p := newPair(t, pairConfig{})
	p.net.SetDefault(simnet.Link{Latency: time.Millisecond})
	for i := range 5 {
		p.b.recv(uint64(i), p.b.sge(0, 100)...)
	}
	wr := c.wr(p)
	wr.WRID = 3
	send := verbs.SendWR{Opcode: verbs.WRSend, SGList: p.a.sge(0, 100)}
	p.a.post(send, send, send, wr, send)
	for range 3 {
		p.a.want(0, verbs.WCSuccess)
	}
	p.a.want(3, c.status)
	p.a.want(0, verbs.WCWRFlushErr)
	for i := range 3 {
		p.b.want(uint64(i), verbs.WCSuccess)
	}
	p.close()

	p = newPair(t, pairConfig{})
	wr = c.wr(p)
	wr.WRID = 3
	began := time.Now()
	p.a.post(wr)
	p.a.want(3, c.status)
	if took := time.Since(began); took > time.Millisecond {
		t.Errorf("a lone request fails after %v", took)
	}
}

// TestReceiverNotReady: the requester waits as long as the responder's timer says, and continues.
func TestReceiverNotReady(t *testing.T) {
	for _, n := range []int{0, 100, 5000} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{rnrRetry: 7, rnrTimer: 19})
			fill(p.a.buf, n)
			began := time.Now()
			p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: p.a.sge(0, n)},
				verbs.SendWR{
					WRID: 2, Opcode: verbs.WRRDMAWriteWithImm, ImmData: 1, SGList: p.a.sge(0, n),
					RemoteAddr: p.b.mr.Addr() + 10000, RKey: p.b.mr.RKey(),
				})
			time.Sleep(20 * time.Millisecond)
			p.b.recv(1, p.b.sge(0, n)...)
			p.b.want(1, verbs.WCSuccess)
			timer := wire.RNRTimer(19)
			if took := time.Since(began); took%timer > time.Millisecond || took < 20*time.Millisecond {
				t.Errorf("arrived after %v, timer is %v", took, timer)
			}
			p.a.want(1, verbs.WCSuccess)
			time.Sleep(20 * time.Millisecond)
			p.b.recv(2)
			p.b.want(2, verbs.WCSuccess)
			p.a.want(2, verbs.WCSuccess)
			if c := p.a.dev.Counters(); c[RNRNAKRetryErr] < 2 || c[PacketSeqErr] != 0 {
				t.Errorf("rnr_nak_retry_err = %d, packet_seq_err = %d", c[RNRNAKRetryErr], c[PacketSeqErr])
			}
			checkMoved(t, p.a.buf, p.b.buf, n)
			checkMoved(t, p.a.buf, p.b.buf[10000:], n)
			p.checkQuiet()
		})
	}
}

// TestRNRRetryCount: with a count other than 7 the requester gives up after that many retries.
func TestRNRRetryCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{rnrRetry: 2, rnrTimer: 14})
		began := time.Now()
		p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: p.a.sge(0, 10)})
		p.a.want(1, verbs.WCRNRRetryExcErr)
		if took := time.Since(began); took < 2*wire.RNRTimer(14) || took > 3*wire.RNRTimer(14) {
			t.Errorf("gave up after %v", took)
		}
		if c := p.b.dev.Counters(); c[OutOfBuffer] != 3 {
			t.Errorf("out_of_buffer = %d, want 3", c[OutOfBuffer])
		}
	})
}

// TestAtomics: each is executed once, however often it is sent.
func TestAtomics(t *testing.T) {
	for _, loss := range []float64{0, 0.2} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{})
			p.net.SetDefault(simnet.Link{Latency: 10 * time.Microsecond, Loss: loss})
			off := int(-p.b.mr.Addr()&7) + 8
			word := p.b.buf[off:]
			atomic := func(op verbs.WROpcode, arg, swap uint64) uint64 {
				p.a.post(verbs.SendWR{
					WRID: 1, Opcode: op, SGList: p.a.sge(0, 8), RemoteAddr: p.b.mr.Addr() + uint64(off), RKey: p.b.mr.RKey(),
					CompareAdd: arg, Swap: swap,
				})
				p.a.want(1, verbs.WCSuccess)
				return binary.NativeEndian.Uint64(p.a.buf)
			}
			for i := range uint64(50) {
				if got := atomic(verbs.WRAtomicFetchAndAdd, 3, 0); got != 3*i {
					t.Fatalf("FetchAdd %d found %d", i, got)
				}
			}
			if got := atomic(verbs.WRAtomicCmpAndSwp, 150, 1<<40); got != 150 {
				t.Errorf("CmpSwp found %d", got)
			}
			if got := atomic(verbs.WRAtomicCmpAndSwp, 150, 7); got != 1<<40 {
				t.Errorf("CmpSwp found %d", got)
			}
			if got := binary.NativeEndian.Uint64(word); got != 1<<40 {
				t.Errorf("memory holds %d", got)
			}
		})
	}
}

// TestFence: a fenced SEND is sent when the READ before it is complete.
func TestFence(t *testing.T) {
	for _, flags := range []verbs.SendFlags{0, verbs.SendFence} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{})
			var order []wire.Opcode
			p.net.SetFilter(func(d *simnet.Datagram) simnet.Action {
				if op := wire.Opcode(d.Payload[0]); op == wire.RCSendOnly || op == wire.RCReadResponseLast {
					order = append(order, op)
				}
				return simnet.Action{}
			})
			p.net.SetDefault(simnet.Link{Latency: time.Millisecond})
			p.b.recv(9)
			p.a.post(
				verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: p.a.sge(0, 5000), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()},
				verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, Flags: flags})
			p.a.want(1, verbs.WCSuccess)
			p.a.want(2, verbs.WCSuccess)
			if sendLast := order[len(order)-1] == wire.RCSendOnly; sendLast != (flags != 0) {
				t.Errorf("order %v with flags %v", order, flags)
			}
		})
	}
}

// TestInline: inline data is copied at post, must be small, and is only for opcodes that send data.
func TestInline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		p.net.SetDefault(simnet.Link{Latency: time.Millisecond})
		p.b.recv(1, p.b.sge(0, 100)...)
		fill(p.a.buf[:100], 1)
		want := string(p.a.buf[:100])
		first := true
		p.net.SetFilter(func(*simnet.Datagram) simnet.Action {
			defer func() { first = false }()
			return simnet.Action{Drop: first}
		})
		p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, Flags: verbs.SendInline, SGList: append(p.a.sge(0, 40), p.a.sge(40, 60)...)})
		clear(p.a.buf[:100])
		p.b.want(1, verbs.WCSuccess)
		if string(p.b.buf[:100]) != want {
			t.Error("not what was there at the post")
		}
		p.a.want(1, verbs.WCSuccess)
		for _, wr := range []verbs.SendWR{
			{Opcode: verbs.WRSend, Flags: verbs.SendInline, SGList: p.a.sge(0, maxInline+1)},
			{Opcode: verbs.WRRDMARead, Flags: verbs.SendInline, SGList: p.a.sge(0, 1)},
		} {
			if _, err := p.a.qp.PostSend([]verbs.SendWR{wr}); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("post: %v", err)
			}
		}
	})
}

// TestScatterGather: entries may be split anywhere, regardless of packets.
func TestScatterGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{mtu: verbs.MTU256})
		fill(p.a.buf[:4000], 1)
		list := func(s *side, lengths ...int) []verbs.SGE {
			var l []verbs.SGE
			off := 0
			for _, n := range lengths {
				l = append(l, s.sge(off, n)...)
				off += n
			}
			return l
		}
		p.b.recv(1, list(p.b, 1, 0, 700, 1299)...)
		p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: list(p.a, 255, 2, 0, 1743)})
		p.b.want(1, verbs.WCSuccess)
		p.a.want(1, verbs.WCSuccess)
		checkMoved(t, p.a.buf, p.b.buf, 2000)
		clear(p.b.buf)
		p.b.post(verbs.SendWR{
			WRID: 2, Opcode: verbs.WRRDMARead, SGList: list(p.b, 3, 513, 0, 1484),
			RemoteAddr: p.a.mr.Addr(), RKey: p.a.mr.RKey(),
		})
		p.b.want(2, verbs.WCSuccess)
		checkMoved(t, p.a.buf, p.b.buf, 2000)
	})
}
