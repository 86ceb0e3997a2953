package roce

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestSilentPeerLeavesReads: all peers of a device share the room for answers to READs. One that doesn't answer keeps
// only a little of it, so that the others' READs go on long before it is given up.
func TestSilentPeerLeavesReads(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		t.Run(fmt.Sprintf("foreign=%v", foreign), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size, reads = 64 << 10, 8
				c := pairConfig{
					mtu: verbs.MTU4096, maxRd: 16, memory: reads * size, timeout: 21, foreign: foreign,
					device: Config{maxWindow: 256 << 10}, endpoint: simnet.Config{MTU: 9000, RecvBuffer: 1 << 20},
				}
				p := newPair(t, c)
				p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
				target, living := p.a, p.b
				dying := p.newSide(netip.MustParseAddr("10.0.0.3"))
				defer dying.dev.Close()
				toDying := another(target, p.cfg)
				p.connect(toDying, dying)

				read := func(s, from *side) (wrs []verbs.SendWR) {
					for i := range reads {
						wrs = append(wrs, verbs.SendWR{
							WRID: uint64(i), Opcode: verbs.WRRDMARead, SGList: s.sge(i*size, size),
							RemoteAddr: from.mr.Addr(), RKey: from.mr.RKey(),
						})
					}
					return wrs
				}
				for range 40 { // which opens the window
					toDying.post(read(toDying, dying)...)
					toDying.wait(reads)
				}
				window := func() int { return inside(toDying, func(q *qp) int { return q.path.reads.size }) }
				before := window()
				p.net.Cut(dying.dev.Attr().Addr, addrA)
				p.net.Cut(addrA, dying.dev.Attr().Addr)
				toDying.post(read(toDying, dying)...)
				time.Sleep(time.Millisecond)
				began := time.Now()
				for range 20 {
					target.post(read(target, living)...)
					target.wait(reads)
				}
				if took, most := time.Since(began), 200*time.Millisecond; took > most {
					t.Errorf("READs from another peer took %v, want at most %v; %s", took, most, dump(target.dev))
				}
				if n := window(); n > before/2 {
					t.Errorf("the window of its READs has %d bytes after silence, and had %d", n, before)
				}
				if n := len(toDying.got); n > 0 {
					t.Errorf("%d READs from the silent peer are over", n)
				}
			})
		})
	}
}
