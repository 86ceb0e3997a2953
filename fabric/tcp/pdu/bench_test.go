package pdu

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// BenchmarkReceive measures all that the codec does for a received header: that of a command.
func BenchmarkReceive(b *testing.B) {
	for _, bm := range benchFormats {
		b.Run(bm.name, func(b *testing.B) {
			p := CapsuleCmd{Header: bm.format.Header(TypeCapsuleCmd, 4096), Cmd: nvme.Command{0: 1}}
			wire := p.Append(nil)
			ru := Rules{Self: Controller, Ready: true, Format: bm.format}
			b.ReportAllocs()
			for b.Loop() {
				h := HeaderAt(wire)
				if err := ru.Check(h); err != nil {
					b.Fatal(err)
				}
				_, whole := h.Head()
				if err := h.CheckDigest(wire[:whole]); err != nil || h.DataLen() != 4096 {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAppend measures what it does for a header to send: that of C2HData.
func BenchmarkAppend(b *testing.B) {
	for _, bm := range benchFormats {
		b.Run(bm.name, func(b *testing.B) {
			buf := make([]byte, 0, MaxHead)
			b.ReportAllocs()
			for b.Loop() {
				p := Data{Header: bm.format.Header(TypeC2HData, 4096), CCCID: 1, DATAL: 4096}
				buf = p.Append(buf[:0])
			}
		})
	}
}

// BenchmarkDigest measures a data digest of 4 KiB.
func BenchmarkDigest(b *testing.B) {
	data := make([]byte, 4096)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		Digest(data)
	}
}

var benchFormats = []struct {
	name   string
	format Format
}{{"plain", Format{}}, {"digests", Format{Digests: allDigests}}}
