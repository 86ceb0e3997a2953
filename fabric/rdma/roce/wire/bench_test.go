package wire

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func benchPacket(n int) (header, payload, whole []byte) {
	p := Packet{BTH: BTH{Opcode: RCSendOnlyWithInv, PKey: DefaultPKey, DestQP: 0x11, PSN: 1, PadCnt: uint8(Pad(n))}}
	p.Payload = make([]byte, n)
	for i := range p.Payload {
		p.Payload[i] = byte(i * 7)
	}
	return p.AppendHeader(nil), p.Payload, p.Append(nil, testFlow, 0x1234)
}

// The sizes are an NVMe completion (a UDP payload of 36 bytes), a command, and a full packet
// of each path MTU in use.
var benchSizes = []int{16, 64, 1024, 4096}

func BenchmarkICRC(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			header, payload, whole := benchPacket(n)
			b.SetBytes(int64(len(whole)))
			for b.Loop() {
				testFlow.ICRC(0, header, payload)
			}
		})
	}
}

// BenchmarkPut writes packets one after the other to 2 MiB, as to shared memory, with their payloads in the caches or
// from random places in 64 MiB.
func BenchmarkPut(b *testing.B) {
	far := make([]byte, 64<<20)
	for i := 0; i < len(far); i += 4096 {
		far[i] = 1 // a page of its own
	}
	ring := make([]byte, 2<<20)
	for _, n := range []int{1024, 4096} {
		for name, from := range map[string][]byte{"near": far[:n], "far": far} {
			b.Run(fmt.Sprint(n, "/", name), func(b *testing.B) {
				header, _, whole := benchPacket(n)
				r := rand.New(rand.NewPCG(26, 27))
				blocks := len(from) / n
				payload, at := from[:n], 0
				b.SetBytes(int64(n))
				for b.Loop() {
					k := r.IntN(blocks) * n
					next := from[k : k+n]
					if at+len(whole) > len(ring) {
						at = 0
					}
					testFlow.Put(ring[at:at+len(whole)], next, 0, header, payload)
					payload, at = next, at+len(whole)
				}
				Fence()
			})
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, n := range benchSizes {
		_, _, whole := benchPacket(n)
		for name, id := range map[string]uint16{"exact": 0x1234, "recover": 0} {
			b.Run(fmt.Sprint(n, "/", name), func(b *testing.B) {
				b.SetBytes(int64(len(whole)))
				for b.Loop() {
					if v, _ := testFlow.Verify(whole, id); v == Bad {
						b.Fatal(v)
					}
				}
			})
		}
	}
}

func BenchmarkParse(b *testing.B) {
	_, _, whole := benchPacket(16)
	var p Packet
	for b.Loop() {
		if err := Parse(&p, whole); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendHeader(b *testing.B) {
	p := Packet{BTH: BTH{Opcode: RCSendOnlyWithInv, PKey: DefaultPKey, DestQP: 0x11, PSN: 1}}
	buf := make([]byte, 0, MaxHeader)
	for b.Loop() {
		buf = p.AppendHeader(buf[:0])
	}
}

func BenchmarkNewFlow(b *testing.B) {
	src, dst := netip.MustParseAddrPort("192.0.2.1:49152"), netip.MustParseAddrPort("192.0.2.2:4791")
	for b.Loop() {
		_ = NewFlow(src, dst)
	}
}
