package blockdev

import "testing"

// TestGuardRead: while a piece is read no writer changes its stripe, and every other one may be written.
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
