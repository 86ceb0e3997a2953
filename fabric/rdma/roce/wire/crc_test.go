package wire

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestCRCEveryLength compares with hash/crc32 for every length that all devices have, many beyond,
// and every alignment.
func TestCRCEveryLength(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 21))
	b := randomBytes(r, MaxPacket+64)
	for n := 0; n <= MaxPacket; n = longer(n, 1) {
		at := r.IntN(64)
		p, start := b[at:at+n], r.Uint32()
		want := crc32.Update(start, crc32.IEEETable, p)
		for _, next := range [][]byte{nil, b[:r.IntN(len(b))], b[len(b)-1:]} {
			if got := ^crcUpdate(^start, p, next); got != want {
				t.Fatalf("%d bytes at offset %d, with %d next: %#08x, want %#08x", n, at, len(next), got, want)
			}
		}
		if got := ^crcShort(^start, p); got != want {
			t.Fatalf("%d bytes at offset %d by tables: %#08x, want %#08x", n, at, got, want)
		}
	}
}

// TestCRCCopyEveryLength: the copy made while summing is complete, and doesn't exceed the length.
func TestCRCCopyEveryLength(t *testing.T) {
	r := rand.New(rand.NewPCG(24, 25))
	b := randomBytes(r, MaxPacket+64)
	const guard = 300
	to := make([]byte, 64+MaxPacket+guard)
	for n := 0; n <= MaxPacket; n = longer(n, 1) {
		from, at := r.IntN(64), r.IntN(64)
		p, start := b[from:from+n], r.Uint32()
		want := crc32.Update(start, crc32.IEEETable, p)
		for _, next := range [][]byte{nil, b[:r.IntN(len(b))], b[len(b)-1:]} {
			for i := range to[:at+n+guard] {
				to[i] = 0xee
			}
			if got := ^crcCopy(^start, to[at:at+n], p, next); got != want {
				t.Fatalf("%d bytes at offset %d, with %d next: %#08x, want %#08x", n, from, len(next), got, want)
			}
			if !bytes.Equal(to[at:at+n], p) {
				t.Fatalf("%d bytes from offset %d to %d are others", n, from, at)
			}
			if bytes.Count(to[:at], []byte{0xee}) != at || bytes.Count(to[at+n:at+n+guard], []byte{0xee}) != guard {
				t.Fatalf("%d bytes to offset %d: something beside them was written", n, at)
			}
		}
	}
}

// TestCRCPacketWhileFetching: prefetching, however much, changes neither the state nor which bits of a BTH count as
// ones.
func TestCRCPacketWhileFetching(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 23))
	b := randomBytes(r, 8<<10)
	for n := BTHSize; n <= len(b)/2; n += 4 {
		p, start := b[:n], r.Uint32()
		want := crcPacketPortable(start, p)
		for _, next := range [][]byte{nil, b[n : n+r.IntN(n)], b[n:]} {
			if got := crcPacket(start, p, next); got != want {
				t.Fatalf("%d bytes, with %d next: %#08x, want %#08x", n, len(next), got, want)
			}
		}
	}
}
