package roce

import (
	"bytes"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// nearConn shares memory with some destinations, or with all if near is nil, and sends what is written to it.
type nearConn struct {
	udp.Conn
	near   func(netip.AddrPort) bool
	full   atomic.Bool // there is no room
	memory [udp.MaxTrainBytes]byte
	begun  bool
	trains int // complete ones
	exact  int // their packets whose ICRC is right for their place in the train
	others int // their packets whose ICRC isn't
	sent   int // trains by Send
	astray int // of these, trains for which there is memory
}

var _ udp.Sharing = (*nearConn)(nil)

func (c *nearConn) Shares(dst netip.AddrPort) bool { return c.near == nil || c.near(dst) }

func (c *nearConn) Begin(t *udp.Train) []byte {
	if c.begun || !c.Shares(t.Dst) || t.Bytes <= 0 || t.Bytes > len(c.memory) || len(t.Parts) > 0 {
		panic("misused")
	}
	if c.full.Load() {
		return nil
	}
	c.begun = true
	for i := range c.memory {
		c.memory[i] = 0xee // of another train
	}
	return c.memory[:t.Bytes:t.Bytes]
}

func (c *nearConn) End(t *udp.Train, whole bool) {
	if !c.begun {
		panic("nothing was begun")
	}
	c.begun = false
	if !whole {
		return
	}
	c.trains++
	flow, left := wire.NewFlow(c.LocalAddr(), t.Dst), c.memory[:t.Bytes]
	for i := 0; len(left) > 0; i++ {
		n := min(t.SegmentSize, len(left))
		if v, _ := flow.Verify(left[:n], uint16(i)); v == wire.Exact {
			c.exact++
		} else {
			c.others++
		}
		left = left[n:]
	}
	train := *t
	train.Parts = [][]byte{bytes.Clone(c.memory[:t.Bytes])}
	_, _ = c.Conn.Send([]udp.Train{train})
}

func (c *nearConn) Send(trains []udp.Train) (int, error) {
	c.sent += len(trains)
	for i := range trains {
		if c.Shares(trains[i].Dst) {
			c.astray++
		}
	}
	return c.Conn.Send(trains)
}

// nearPair makes a pair whose side a sends through memory.
func nearPair(t *testing.T, c pairConfig) (*pair, *nearConn) {
	var near *nearConn
	c.wrap = func(conn udp.Conn) udp.Conn {
		if near == nil {
			near = &nearConn{Conn: conn}
			return near
		}
		return conn
	}
	return newPair(t, c), near
}

// TestNear: what goes through memory arrives with all its bytes, at all lengths and with and without ICRC, and nothing
// goes another way.
func TestNear(t *testing.T) {
	for name, options := range map[string]uint32{
		"usual": 0, "long": OptionLongSend | OptionJumboData | OptionWriteSend | OptionAckAlong, "no ICRC": OptionNoICRC,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, near := nearPair(t, pairConfig{options: options, sges: 3})
				fill(p.a.buf, 5)
				for i, n := range []int{1, 63, copyBelow, copyBelow + 1, 1023, 4096, 4099, 40000, 100_000} {
					clear(p.b.buf)
					a, b := n/3, n/2 // in pieces
					var sges []verbs.SGE
					for _, s := range [][2]int{{0, a}, {a, b}, {b, n}} {
						sges = append(sges, p.a.sge(s[0], s[1]-s[0])...)
					}
					p.a.post(verbs.SendWR{
						WRID: uint64(i), Opcode: verbs.WRRDMAWrite, SGList: sges, RemoteAddr: p.b.mr.Addr() + 1, RKey: p.b.mr.RKey(),
					})
					p.a.want(uint64(i), verbs.WCSuccess)
					if !bytes.Equal(p.b.buf[1:n+1], p.a.buf[:n]) || p.b.buf[0] != 0 || p.b.buf[n+1] != 0 {
						t.Fatalf("%d bytes: others arrived", n)
					}
				}
				synctest.Wait()
				if near.trains == 0 || near.sent > 0 {
					t.Errorf("%d trains through memory, %d beside", near.trains, near.sent)
				}
				if right, wrong := near.exact, near.others; options == OptionNoICRC && right > 0 || options != OptionNoICRC && wrong > 0 {
					t.Errorf("%d packets have the ICRC of their place, %d don't", right, wrong)
				}
				wantCount(t, p.a.dev, Retransmitted, 0)
				wantCount(t, p.b.dev, BadICRC, 0)
			})
		})
	}
}

// TestNearAndFar: of a batch, what is for the peer that shares memory goes through it, and everything else through the
// socket.
func TestNearAndFar(t *testing.T) {
	for _, n := range []int{3000, 2048} { // of which the last packet ends a train; after which another could go on
		for _, first := range []uint64{2, 3} { // to the far one; to the near one
			t.Run(fmt.Sprintf("%d bytes, first %d", n, first), func(t *testing.T) { testNearAndFar(t, n, first) })
		}
	}
}

func testNearAndFar(t *testing.T, n int, first uint64) {
	synctest.Test(t, func(t *testing.T) {
		p, near := nearPair(t, pairConfig{})
		near.near = func(dst netip.AddrPort) bool { return dst.Addr() == p.b.dev.self.Addr() }
		far := p.newSide(netip.MustParseAddr("192.0.2.77"))
		defer far.dev.Close()
		toFar := p.a.newQP(p.cfg)
		p.ready(toFar, far.dev, far.qp)
		p.ready(far.qp, p.a.dev, toFar)
		fill(p.a.buf, 7)
		write := func(id uint64, to *side) []verbs.SendWR {
			at := int(id) * n
			return []verbs.SendWR{{
				WRID: id, Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(at, n), RemoteAddr: to.mr.Addr() + uint64(at), RKey: to.mr.RKey(),
			}}
		}
		p.a.handle = func(wc *verbs.WC) {
			if wc.WRID != 1 {
				return
			}
			for id := first; id < first+6; id++ { // they leave together, when the handler has ended
				q, to := p.a.qp, p.b
				if id%2 == 0 {
					q, to = toFar, far
				}
				if _, err := q.PostSend(write(id, to)); err != nil {
					t.Error(err)
				}
			}
		}
		p.a.post(write(1, p.b)...)
		for _, wc := range p.a.wait(7) {
			if wc.Status != verbs.WCSuccess {
				t.Errorf("completion of %d: %v", wc.WRID, wc.Status)
			}
		}
		synctest.Wait()
		for id := int(first); id < int(first)+6; id++ {
			to, other := p.b, far
			if id%2 == 0 {
				to, other = far, p.b
			}
			if !bytes.Equal(to.buf[id*n:][:n], p.a.buf[id*n:][:n]) || !bytes.Equal(other.buf[id*n:][:n], make([]byte, n)) {
				t.Errorf("WRITE %d: other data", id)
			}
		}
		if near.trains < 2 || near.sent == 0 || near.astray > 0 || near.others > 0 {
			t.Errorf("%d trains through memory, with %d packets that have other ICRCs, and %d beside, of which %d shouldn't be",
				near.trains, near.others, near.sent, near.astray)
		}
		wantCount(t, p.a.dev, Retransmitted, 0)
	})
}

// TestNearMissingPages: data that is gone when it is to be written to memory fails its queue pair; the train that it
// was in isn't sent half written.
func TestNearMissingPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, near := nearPair(t, pairConfig{})
		mr, there := cutRegion(t, p.a.pd, 16<<10, 8<<10, 0)
		fill(p.a.buf[:8192], 3)
		fill(there[:1024], 4)
		write := func(id uint64, at int, sges ...verbs.SGE) verbs.SendWR {
			return verbs.SendWR{WRID: id, Opcode: verbs.WRRDMAWrite, SGList: sges, RemoteAddr: p.b.mr.Addr() + uint64(at), RKey: p.b.mr.RKey()}
		}
		p.a.post(
			write(0, 0, verbs.SGE{Addr: mr.Addr(), Length: 1 << 10, LKey: mr.LKey()}), // from a page that is there
			write(1, 10000, p.a.sge(0, 1024)...),
			write(2, 20000, verbs.SGE{Addr: mr.Addr() + 12<<10, Length: 1 << 10, LKey: mr.LKey()}),
			write(3, 30000, p.a.sge(0, 1024)...),
		)
		p.a.want(0, verbs.WCSuccess)
		p.a.want(1, verbs.WCSuccess)
		p.a.want(2, verbs.WCLocProtErr)
		p.a.want(3, verbs.WCWRFlushErr)
		if !bytes.Equal(p.b.buf[:1024], there[:1024]) {
			t.Error("what wasn't missing has other data")
		}
		if !bytes.Equal(p.b.buf[10000:11024], p.a.buf[:1024]) {
			t.Error("what was before it has other data")
		}
		if p.b.buf[20000] != 0 || p.b.buf[30000] != 0 {
			t.Error("what was missing, or behind it, has been executed")
		}
		wantCount(t, p.b.dev, BadICRC, 0)
		synctest.Wait()
		if near.sent > 0 {
			t.Errorf("%d trains beside", near.sent)
		}
	})
}

// TestNearFull: what finds no room is lost, and is sent again.
func TestNearFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, near := nearPair(t, pairConfig{})
		near.full.Store(true)
		fill(p.a.buf[:5000], 3)
		p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 5000), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
		synctest.Wait()
		near.full.Store(false)
		p.a.want(1, verbs.WCSuccess)
		if !bytes.Equal(p.b.buf[:5000], p.a.buf[:5000]) || p.a.dev.Counters()[Retransmitted] == 0 {
			t.Errorf("other data, or nothing was sent again: %s", dump(p.a.dev))
		}
	})
}
