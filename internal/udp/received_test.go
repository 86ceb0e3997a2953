package udp

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// splitNaively is a simple reference for Datagrams.
func splitNaively(buf []byte, size int) [][]byte {
	if size <= 0 || len(buf) == 0 {
		return [][]byte{buf}
	}
	return slices.Collect(slices.Chunk(buf, size))
}

func checkSplit(t *testing.T, buf []byte, size int) {
	t.Helper()
	r := Received{Buf: buf, SegmentSize: size}
	want := splitNaively(buf, size)
	if r.Count() != len(want) {
		t.Fatalf("%d bytes by %d: Count %d, want %d", len(buf), size, r.Count(), len(want))
	}
	i := 0
	for d := range r.Datagrams() {
		if i == len(want) || !bytes.Equal(d, want[i]) || cap(d) != len(d) {
			t.Fatalf("%d bytes by %d: datagram %d has %d bytes (cap %d)", len(buf), size, i, len(d), cap(d))
		}
		i++
	}
	if i != len(want) {
		t.Fatalf("%d bytes by %d: %d datagrams, want %d", len(buf), size, i, len(want))
	}
}

func TestSplitEqualsNaiveForEveryLength(t *testing.T) {
	buf := pattern(300, 1)
	for n := range len(buf) + 1 {
		for size := range 65 {
			checkSplit(t, buf[:n], size)
		}
	}
}

func FuzzSplit(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add([]byte("abcdefgh"), 3)
	f.Add([]byte{}, 0)
	f.Add([]byte("a"), -1)
	f.Fuzz(func(t *testing.T, buf []byte, size int) { checkSplit(t, buf, size) })
}

func TestSplitStopsAndAllocatesNothing(t *testing.T) {
	r := Received{Buf: make([]byte, 1000), SegmentSize: 100}
	seen := 0
	allocs := testing.AllocsPerRun(100, func() {
		seen = 0
		for range r.Datagrams() {
			if seen++; seen == 3 {
				break
			}
		}
	})
	if seen != 3 || allocs != 0 {
		t.Errorf("saw %d of 3, %v allocations", seen, allocs)
	}
}

func pattern(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}
