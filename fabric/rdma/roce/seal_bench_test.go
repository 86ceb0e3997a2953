package roce

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// BenchmarkSeal makes trains of 4 KiB blocks out of 64 MiB at random, in packets as Ethernet takes them, and whole.
func BenchmarkSeal(b *testing.B) {
	far := make([]byte, 64<<20)
	const block = 4 << 10
	for i := 0; i < len(far); i += block {
		far[i] = 1 // a page of its own
	}
	src, dst := netip.MustParseAddrPort("192.0.2.1:49152"), netip.MustParseAddrPort("192.0.2.2:4791")
	flow := wire.NewFlow(src, dst)
	for _, n := range []int{1024, block} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(26, 27))
			t := newTxBatch()
			t.packet.Opcode = wire.RCWriteOnly
			const blocks = 32
			b.SetBytes(blocks * block)
			for b.Loop() {
				t.reset()
				for range blocks {
					data := far[r.IntN(len(far)/block)*block:][:block]
					for ; len(data) > 0; data = data[n:] {
						t.gathered = append(t.gathered[:0], data[:n])
						t.addTo(dst, anyEngine, flow, 0, n, false)
					}
				}
				for i := 0; i < len(t.packets); {
					i = t.seal(i, always, never)
				}
			}
		})
	}
}
