package roce

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// TestNoICRC: packets without ICRC are accepted and sent if that was agreed on with a peer of our kind, and are never
// accepted otherwise.
func TestNoICRC(t *testing.T) {
	for _, c := range []struct {
		name   string
		config pairConfig
		agreed bool
	}{
		{"agreed on", pairConfig{ours: true, options: OptionNoICRC}, true},
		{"not agreed on", pairConfig{ours: true}, false},
		{"of another vendor", pairConfig{options: OptionNoICRC}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, c.config)
				p := r.write(wire.RCWriteOnly, 100, 10, 10)
				b := p.Append(nil, r.flow, 0)
				clear(b[len(b)-wire.ICRCSize:])
				_, err := r.conn.Send([]udp.Train{{Dst: r.dst, Parts: [][]byte{b}, Bytes: len(b), SegmentSize: len(b)}})
				check(t, err)
				if !c.agreed {
					r.expect()
					wantCount(t, r.dev.dev, BadICRC, 1)
					return
				}
				answer := r.oneAnswer()
				if !bytes.Equal(answer[len(answer)-wire.ICRCSize:], make([]byte, wire.ICRCSize)) {
					t.Errorf("the answer %x has an ICRC", answer)
				}
				wantCount(t, r.dev.dev, NoICRC, 1)
				// What isn't for the queue pair still needs one.
				p = r.packet(wire.RCSendOnly, 101, 4)
				p.DestQP++
				b = p.Append(nil, r.flow, 0)
				clear(b[len(b)-wire.ICRCSize:])
				_, err = r.conn.Send([]udp.Train{{Dst: r.dst, Parts: [][]byte{b}, Bytes: len(b), SegmentSize: len(b)}})
				check(t, err)
				r.expect()
				wantCount(t, r.dev.dev, BadICRC, 1)
			})
		})
	}
}

// TestNoICRCBesideICRC moves data over two connections between the same devices, one of which has no ICRCs, and ends
// either.
func TestNoICRCBesideICRC(t *testing.T) {
	for _, endBare := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{options: OptionNoICRC})
			p.cfg.options = 0
			bare, summed := [2]verbs.QP{p.a.qp, p.b.qp}, [2]verbs.QP{p.a.newQP(p.cfg), p.b.newQP(p.cfg)}
			p.ready(summed[0], p.b.dev, summed[1])
			p.ready(summed[1], p.a.dev, summed[0])
			move := func(q verbs.QP, seed int) {
				t.Helper()
				const n = 10_000
				fill(p.a.buf[:n], seed)
				for id, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
					_, err := q.PostSend([]verbs.SendWR{{
						WRID: uint64(id), Opcode: op, RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey(), SGList: p.a.sge(id*n, n),
					}})
					check(t, err)
					p.a.want(uint64(id), verbs.WCSuccess)
				}
				if !bytes.Equal(p.a.buf[:n], p.a.buf[n:2*n]) {
					t.Error("what came back isn't what was sent")
				}
			}
			move(bare[0], 1)
			if p.a.dev.Counters()[NoICRC] == 0 || p.b.dev.Counters()[NoICRC] == 0 {
				t.Error("all packets had an ICRC")
			}
			before := p.b.dev.Counters()[NoICRC]
			move(summed[0], 2)
			wantCount(t, p.b.dev, NoICRC, before)
			ends, stays := summed, bare
			if endBare {
				ends, stays = bare, summed
			}
			check(t, ends[0].Destroy())
			check(t, ends[1].Destroy())
			move(stays[0], 3)
			if endBare {
				wantCount(t, p.b.dev, NoICRC, before)
			}
			for _, s := range []*side{p.a, p.b} {
				wantCount(t, s.dev, BadICRC, 0)
			}
		})
	}
}

func wantCount(t *testing.T, d *Device, c Counter, want uint64) {
	t.Helper()
	if got := d.Counters()[c]; got != want {
		t.Errorf("%v is %d, want %d", c, got, want)
	}
}

// oneAnswer returns the only datagram that the device sent.
func (r *rawPeer) oneAnswer() []byte {
	r.t.Helper()
	time.Sleep(10 * rawLatency)
	synctest.Wait()
	n, err := r.conn.TryRecv(r.rx[:])
	check(r.t, err)
	if n != 1 || r.rx[0].Count() != 1 {
		r.t.Fatalf("%d answers, want one", n)
	}
	return r.rx[0].Buf
}
