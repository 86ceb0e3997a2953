package stream

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestCopy: the data is copied, and nothing around it changes, at any alignment and length.
func TestCopy(t *testing.T) {
	const room = 3*from + 4*Line
	src, dst, want := make([]byte, room), make([]byte, room), make([]byte, room)
	for i := range src {
		src[i] = byte(rand.Uint32())
	}
	lengths := []int{0, 1, Line, from - 1, from, from + 1, from + Line - 1, 2*from + 17, 3 * from}
	for at := range 2 * Line {
		for _, n := range lengths {
			for _, skew := range []int{0, 1, 31, Line - 1} {
				for i := range dst {
					dst[i], want[i] = 0xa5, 0xa5
				}
				copy(want[at:at+n], src[skew:])
				if got := Copy(dst[at:at+n], src[skew:]); got != n || !bytes.Equal(dst, want) {
					t.Fatalf("%d bytes from %d to %d: %d are copied, rightly: %v", n, skew, at, got, bytes.Equal(dst, want))
				}
			}
		}
	}
	if n := Copy(dst, src[:from]); n != from {
		t.Errorf("%d bytes are copied of %d", n, from)
	}
}

// TestNoAllocation: a copy allocates nothing.
func TestNoAllocation(t *testing.T) {
	src, dst := make([]byte, 4*from), make([]byte, 4*from)
	if n := testing.AllocsPerRun(100, func() { Copy(dst, src) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
