package roce

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestLargeReadHasItsTurn: a large READ finds room for its answer, although small ones, of another peer or of another
// queue pair to the same peer, take whatever room there is.
func TestLargeReadHasItsTurn(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		for _, same := range []bool{false, true} {
			t.Run(fmt.Sprintf("foreign=%v, same peer=%v", foreign, same), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testReadTurns(t, foreign, same) })
			})
		}
	}
}

func testReadTurns(t *testing.T, foreign, same bool) {
	const small, large, depth = 8 << 10, 256 << 10, 64
	p := newPair(t, pairConfig{
		mtu: verbs.MTU4096, maxRd: 128, depth: depth, memory: large, timeout: 17, foreign: foreign,
		device: Config{maxWindow: 256 << 10}, endpoint: simnet.Config{MTU: 9000, RecvBuffer: 1 << 20},
	})
	p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
	far := p.newSide(netip.MustParseAddr("10.0.0.3"))
	defer far.dev.Close()
	if same {
		far = another(p.b, p.cfg)
	}
	busy := another(p.a, p.cfg)
	p.connect(busy, far)
	read := func(s, from *side, n int) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: s.sge(0, n), RemoteAddr: from.mr.Addr(), RKey: from.mr.RKey()}
	}
	var stop atomic.Bool
	busy.handle = func(*verbs.WC) {
		if !stop.Load() {
			busy.post(read(busy, far, small))
		}
	}
	for range depth {
		busy.post(read(busy, far, small))
	}
	time.Sleep(10 * time.Millisecond)
	p.a.post(read(p.a, p.b, large))
	time.Sleep(10 * time.Millisecond)
	stop.Store(true)
	synctest.Wait()
	if len(p.a.got) == 0 {
		t.Errorf("a READ of %d bytes isn't over; %s", large, dump(p.a.dev))
	}
	time.Sleep(10 * time.Millisecond)
}

// TestReadIsCut: a READ is requested in pieces that the receive buffer can take. When a piece is asked for again, from
// some packet on, that ends where the piece does: a responder need not answer more than it was asked for (IBTA
// 9.7.5.1.4).
func TestReadIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, pairConfig{})
		d := r.dev.dev
		d.mu.Lock()
		d.readPiece = 4*rawMTU - 1 // rounded up to whole packets
		d.mu.Unlock()
		r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, 10*rawMTU), RemoteAddr: 1 << 40, RKey: 7})
		r.answers()
		r.wantReads([3]int{100, 0, 4}, [3]int{104, 4, 4}, [3]int{108, 8, 2})
		r.send(r.packet(wire.RCReadResponseFirst, 100, rawMTU), r.packet(wire.RCReadResponseMiddle, 101, rawMTU))
		r.expect()
		time.Sleep(minEarlyTimeout)
		r.answers()
		r.wantReads([3]int{102, 2, 2})
		r.send(r.packet(wire.RCReadResponseFirst, 102, rawMTU), r.packet(wire.RCReadResponseLast, 103, rawMTU))
		r.answers()
		r.wantReads([3]int{104, 4, 4}, [3]int{108, 8, 2})
	})
}

// wantReads checks the requests of READs that were received last: their PSNs, and the packets from which on they ask
// for so many.
func (r *rawPeer) wantReads(want ...[3]int) {
	r.t.Helper()
	var got [][3]int
	for _, p := range r.got {
		if p.Opcode != wire.RCReadRequest || p.RETH.Length%rawMTU != 0 {
			r.t.Fatalf("%s with a length of %d", describe(&p), p.RETH.Length)
		}
		got = append(got, [3]int{int(p.PSN), int(p.RETH.VA-1<<40) / rawMTU, int(p.RETH.Length) / rawMTU})
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("READs of %v, want %v", got, want)
	}
}

// TestReadStep: a READ asks a peer of our kind for a quarter of the window at once, so that a retry doesn't ask for
// more; but for two large packets, if half of the window has room for them, and always for one packet.
func TestReadStep(t *testing.T) {
	for _, c := range []struct{ window, want int }{
		{64 << 10, 16 << 10},
		{32 << 10, 8 << 10},
		{20 << 10, 8 << 10},
		{16 << 10, 8 << 10},
		{8 << 10, 4 << 10},
		{10000, 5000 / rawMTU * rawMTU},
		{rawMTU, rawMTU},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRaw(t, pairConfig{ours: true})
			d := r.dev.dev
			d.mu.Lock()
			d.paths[addrA].reads = newWindow(c.window, c.window, c.window)
			d.mu.Unlock()
			r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: r.dev.sge(0, 128<<10), RemoteAddr: 1 << 40, RKey: 7})
			r.answers()
			if n := int(r.got[0].RETH.Length); n != c.want {
				t.Errorf("with a window of %d the first READ asks for %d bytes, want %d", c.window, n, c.want)
			}
		})
	}
}
