package roce

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// faultingConn refuses memory that faults, as the system does.
type faultingConn struct{ udp.Conn }

func (c faultingConn) Send(trains []udp.Train) (int, error) {
	scratch := make([]byte, 64<<10)
	for i := range trains {
		for _, part := range trains[i].Parts {
			if _, ok := mem.Copy(scratch, part); ok {
				continue
			}
			if n, err := c.Conn.Send(trains[:i]); err != nil {
				return n, err
			}
			return i, &udp.OpError{Op: "send", Err: unix.EFAULT}
		}
	}
	return c.Conn.Send(trains)
}

// cutRegion registers the mapping of a file that is truncated to keep bytes.
func cutRegion(t *testing.T, pd verbs.PD, size, keep int64, hints verbs.Access) (mr verbs.MR, b []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	check(t, err)
	defer f.Close()
	check(t, f.Truncate(size))
	b, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(t, err)
	t.Cleanup(func() { unix.Munmap(b) })
	check(t, f.Truncate(keep))
	mr, err = pd.RegMR(b, verbs.AccessLocalWrite|verbs.AccessOnDemand|hints)
	check(t, err)
	return mr, b
}

// TestMissingPages: a page that is gone from memory registered on demand fails the queue pair that uses it, and neither
// the program nor another queue pair.
func TestMissingPages(t *testing.T) {
	const size, keep = 64 << 10, 16 << 10
	for name, x := range map[string]struct {
		op    verbs.WROpcode
		hints verbs.Access
	}{
		"WRITE": {op: verbs.WRRDMAWrite}, "SEND": {op: verbs.WRSend}, "READ": {op: verbs.WRRDMARead},
		"READ, streamed": {verbs.WRRDMARead, verbs.AccessStreamed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, pairConfig{wrap: func(c udp.Conn) udp.Conn { return faultingConn{c} }})
				mr, there := cutRegion(t, p.a.pd, size, keep, x.hints)
				fill(p.b.buf[:keep], 5)
				data := func(off, n int) []verbs.SGE {
					return []verbs.SGE{{Addr: mr.Addr() + uint64(off), Length: uint32(n), LKey: mr.LKey()}}
				}
				for i := range 2 {
					p.b.recv(uint64(i), p.b.sge(0, size)...)
				}
				wr := verbs.SendWR{WRID: 1, Opcode: x.op, SGList: data(0, keep), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()}
				p.a.post(wr)
				p.a.want(1, verbs.WCSuccess)
				if x.op == verbs.WRRDMARead && !bytes.Equal(there[:keep], p.b.buf[:keep]) {
					t.Error("other data")
				}
				for _, n := range []int{keep, 100} { // from a page that is there; in one packet of its own
					wr.WRID, wr.SGList = 2, data(size-n-keep, n)
					p.a.post(wr)
					p.a.want(2, verbs.WCLocProtErr)
					if p.a.qp.Query().State != verbs.Err {
						t.Fatal("the queue pair goes on")
					}
					p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
					p.connect(p.a, p.b)
				}
				p.a.post(verbs.SendWR{WRID: 3, Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, size), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
				p.a.want(3, verbs.WCSuccess)
			})
		})
	}
}

// TestMissingPagesInTheirTurn: of requests posted together the one whose data is missing fails, those before it
// succeed, and those behind it are flushed and don't reach the peer. Packets before it may be in one train with it,
// which the system refuses as a whole.
func TestMissingPagesInTheirTurn(t *testing.T) {
	for name, foreign := range map[string]bool{"ours": false, "stranger": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, pairConfig{foreign: foreign, wrap: func(c udp.Conn) udp.Conn { return faultingConn{c} }})
				mr, _ := cutRegion(t, p.a.pd, 16<<10, 8<<10, 0)
				p.b.recv(1, p.b.sge(0, 4096)...)
				write := func(id uint64, at int, sges ...verbs.SGE) verbs.SendWR {
					return verbs.SendWR{WRID: id, Opcode: verbs.WRRDMAWrite, SGList: sges, RemoteAddr: p.b.mr.Addr() + uint64(at), RKey: p.b.mr.RKey()}
				}
				fill(p.a.buf[:8192], 3)
				p.a.post(
					write(1, 10000, p.a.sge(0, 3000)...),
					verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: p.a.sge(3000, 1024)},
					write(3, 20000, verbs.SGE{Addr: mr.Addr() + 6<<10, Length: 4 << 10, LKey: mr.LKey()}), // which ends missing
					write(4, 30000, p.a.sge(0, 1024)...),
				)
				p.a.want(1, verbs.WCSuccess)
				p.a.want(2, verbs.WCSuccess)
				p.a.want(3, verbs.WCLocProtErr)
				p.a.want(4, verbs.WCWRFlushErr)
				p.b.want(1, verbs.WCSuccess)
				if !bytes.Equal(p.b.buf[10000:13000], p.a.buf[:3000]) || !bytes.Equal(p.b.buf[:1024], p.a.buf[3000:4024]) {
					t.Error("other data")
				}
				if p.b.buf[30000] != 0 || p.b.buf[30100] != 0 {
					t.Error("what was behind has been executed")
				}
			})
		})
	}
}

// TestMissingPagesOfWhatArrived: data that is gone when it would be sent again is no fault if it turns out that it had
// arrived.
func TestMissingPagesOfWhatArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, pairConfig{wrap: func(c udp.Conn) udp.Conn { return faultingConn{c} }})
		mr, b := cutRegion(t, r.dev.pd, 8<<10, 8<<10, 0)
		send := func(id uint64, sges ...verbs.SGE) {
			r.dev.post(verbs.SendWR{WRID: id, Opcode: verbs.WRSend, SGList: sges})
		}
		send(1, r.dev.sge(0, 100)...)
		send(2, verbs.SGE{Addr: mr.Addr(), Length: 250, LKey: mr.LKey()})
		r.expect("RC_SEND_ONLY 100 +100", "RC_SEND_ONLY 101 +250")
		check(t, unix.Mprotect(b, unix.PROT_NONE))
		r.send(r.nak(wire.NAKPSNSequenceError, 100)) // the peer holds what came behind
		if got := r.answers(); len(got) > 1 || r.dev.dev.Counters()[SendErrors] != 1 {
			t.Errorf("sent again: %q; %s", got, dump(r.dev.dev))
		}
		r.send(r.ack(101))
		r.dev.want(1, verbs.WCSuccess)
		r.dev.want(2, verbs.WCSuccess)
		send(3, r.dev.sge(0, 100)...)
		r.expect("RC_SEND_ONLY 102 +100")
		if r.dev.dev.qps.all[0].req.unreadable {
			t.Error("the packet with that PSN would be taken for missing when PSNs come again")
		}
	})
}

// TestMissingPagesOutOfReach: peers, which would access it in the middle of a packet, are never given memory with pages
// that may be missing, and inline data is not taken from a missing page.
func TestMissingPagesOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		mr, b := cutRegion(t, p.a.pd, 8192, 4096, 0)
		for _, access := range []verbs.Access{
			verbs.AccessRemoteRead, verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic, verbs.AccessMWBind,
		} {
			_, err := p.a.pd.RegMR(b, verbs.AccessLocalWrite|verbs.AccessOnDemand|access)
			if !errors.Is(err, verbs.ErrUnsupported) {
				t.Errorf("access %b: %v", access, err)
			}
		}
		inline := func(off uint64) verbs.SendWR {
			return verbs.SendWR{
				WRID: off, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey(),
				SGList: []verbs.SGE{{Addr: mr.Addr() + off, Length: 100, LKey: mr.LKey()}, {Addr: mr.Addr(), Length: 100, LKey: mr.LKey()}},
			}
		}
		fill(b[:4096], 7)
		n, err := p.a.qp.PostSend([]verbs.SendWR{inline(1000), inline(5000), inline(2000)})
		if n != 1 || !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%d posted, %v; want 1 and an invalid one", n, err)
		}
		p.a.want(1000, verbs.WCSuccess)
		if !bytes.Equal(p.b.buf[:200], append(slices.Clone(b[1000:1100]), b[:100]...)) {
			t.Error("other data")
		}
	})
}
