package blockdev

import (
	"slices"
	"testing"
)

// TestGuardRead: while a piece is read no writer changes its stripe, but all others may be written.
func TestGuardRead(t *testing.T) {
	const stripes = 4
	var g *Guard
	var finished []int64
	pieces, bytes := 0, int64(0)
	apply := func(r *Request, off, n int64) {
		if r.Op != OpRead {
			return
		}
		at := off >> stripeShift
		if off+n > (at+1)<<stripeShift || n <= 0 {
			t.Errorf("a piece of %d bytes at %d", n, off)
		}
		for s := range int64(stripes) {
			w := &Request{Op: OpWrite, Offset: s << stripeShift, Length: MinBlockSize}
			if g.Write(w) != (s != at) {
				t.Errorf("stripe %d is read: stripe %d is written: %v", at, s, s == at)
			}
		}
		pieces, bytes = pieces+1, bytes+n
	}
	g = NewGuard(stripes*stripeSize, apply, func(r *Request) { finished = append(finished, r.Offset>>stripeShift) })
	g.Read(&Request{Op: OpRead, Offset: stripeSize / 2, Length: 3 * stripeSize})
	if bytes != 3*stripeSize {
		t.Errorf("%d bytes were read, want %d", bytes, 3*stripeSize)
	}
	if pieces != stripes || len(finished) != stripes {
		t.Errorf("%d pieces were read; writers of stripes %v went on, want all %d", pieces, finished, stripes)
	}
}

// TestGuardPieces: requests are applied stripe by stripe, wherever they begin and end.
func TestGuardPieces(t *testing.T) {
	type piece struct{ off, n int64 }
	var got []piece
	g := NewGuard(8*stripeSize, func(_ *Request, off, n int64) { got = append(got, piece{off, n}) }, nil)
	for _, tc := range []struct {
		off, n int64
		want   []piece
	}{
		{512, 512, []piece{{512, 512}}},
		{stripeSize - 512, 1024, []piece{{stripeSize - 512, 512}, {stripeSize, 512}}},
		{4096, 2*stripeSize + 512, []piece{{4096, stripeSize - 4096}, {stripeSize, stripeSize}, {2 * stripeSize, 4096 + 512}}},
		{2 * stripeSize, 0, nil},
	} {
		for name, apply := range map[string]func(*Request){
			"read":  g.Read,
			"write": func(r *Request) { g.Write(r) },
		} {
			got = nil
			apply(&Request{Offset: tc.off, Length: tc.n})
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s of %d bytes at %d: %v, want %v", name, tc.n, tc.off, got, tc.want)
			}
		}
	}
}
