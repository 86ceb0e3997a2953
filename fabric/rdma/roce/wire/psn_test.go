package wire

import (
	"math/rand/v2"
	"testing"
)

func TestPSNWraps(t *testing.T) {
	for _, c := range []struct {
		a, b PSN
		diff int
	}{
		{0, 0, 0},
		{1, 0, 1},
		{0, 1, -1},
		{0, 0xffffff, 1},
		{0xffffff, 0, -1},
		{0x7fffff, 0, 0x7fffff},
		{0x800000, 0, -0x800000},
		{0x800001, 0, -0x7fffff},
		{5, 0xfffff0, 21},
	} {
		if got := c.a.Diff(c.b); got != c.diff {
			t.Errorf("%#x.Diff(%#x) = %d, want %d", c.a, c.b, got, c.diff)
		}
		if got := c.b.Add(c.diff); got != c.a {
			t.Errorf("%#x.Add(%d) = %#x, want %#x", c.b, c.diff, got, c.a)
		}
		if got := c.a.Before(c.b); got != (c.diff < 0) {
			t.Errorf("%#x.Before(%#x) = %v", c.a, c.b, got)
		}
		if got := c.a.After(c.b); got != (c.diff > 0) {
			t.Errorf("%#x.After(%#x) = %v", c.a, c.b, got)
		}
	}
	if got := PSN(0xffffff).Next(); got != 0 {
		t.Errorf("Next of the last PSN = %#x, want 0", got)
	}
	if got := MSN(0xffffff).Add(2); got != 1 {
		t.Errorf("MSN 0xffffff + 2 = %#x", got)
	}
}

func TestPSNAddDiffAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100000 {
		p := MakePSN(r.Uint32())
		n := r.IntN(1<<psnBits) - 1<<(psnBits-1)
		q := p.Add(n)
		if q > psnMask || q.Diff(p) != n {
			t.Fatalf("%#x.Add(%d) = %#x, Diff back %d", p, n, q, q.Diff(p))
		}
	}
}
