package blockdev

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
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

// TestGuardDrops: what drops content is applied to many stripes at once, up to one that a view shows; from there on when
// the view has ended, by a goroutine of its own if that is long.
func TestGuardDrops(t *testing.T) {
	type piece struct{ off, n int64 }
	for _, op := range []Op{OpDiscard, OpWriteZeroes} {
		synctest.Test(t, func(t *testing.T) {
			const stripes, shown = 4 * together, together + 7
			var got []piece
			var released chan struct{} // once it is set, nothing is applied before it is closed
			ended := 0
			g := NewGuard(stripes*stripeSize, func(_ *Request, off, n int64) {
				if released != nil {
					<-released
				}
				got = append(got, piece{off >> stripeShift, n >> stripeShift})
			}, func(*Request) { ended++ })
			held, ok := g.View(shown*stripeSize, stripeSize)
			if !ok || g.Write(&Request{Op: op, Offset: 3 * stripeSize, Length: (stripes - 3) * stripeSize}) {
				t.Fatal("it doesn't wait for a view")
			}
			if want := []piece{{3, together - 3}, {together, 7}}; !slices.Equal(got, want) {
				t.Errorf("%s: %v before the view has ended, want %v", op, got, want)
			}
			got, released = nil, make(chan struct{})
			g.Release(held) // would wait for ever if it applied the rest
			close(released)
			synctest.Wait()
			want := []piece{{shown, together - 7}, {2 * together, together}, {3 * together, together}}
			if !slices.Equal(got, want) || ended != 1 {
				t.Errorf("%s: %v after it, %d ended; want %v, 1", op, got, ended, want)
			}
		})
	}
}

// TestGuardViewRefused: a view that a writer waits for in its last stripe keeps none of the others.
func TestGuardViewRefused(t *testing.T) {
	const stripes = 4
	ended := 0
	g := NewGuard(stripes*stripeSize, func(*Request, int64, int64) {}, func(*Request) { ended++ })
	held, ok := g.View((stripes-1)*stripeSize, stripeSize)
	if !ok || g.Write(&Request{Op: OpWrite, Offset: (stripes - 1) * stripeSize, Length: MinBlockSize}) {
		t.Fatal("a writer doesn't wait for a view")
	}
	if _, ok := g.View(0, stripes*stripeSize); ok {
		t.Error("a view where a writer waits")
	}
	for s := range int64(stripes - 1) {
		if !g.Write(&Request{Op: OpWrite, Offset: s * stripeSize, Length: MinBlockSize}) {
			t.Errorf("stripe %d: a writer waits", s)
		}
	}
	g.Release(held)
	if ended != 1 {
		t.Errorf("%d writers went on when the view ended, want 1", ended)
	}
}

// TestGuardExcludeFails: the first error ends Exclude, and keeps nobody out.
func TestGuardExcludeFails(t *testing.T) {
	g := NewGuard(4*stripeSize, func(*Request, int64, int64) {}, nil)
	failure, calls := errors.New("failure"), 0
	err := g.Exclude(0, 12*stripeSize, func(int64, int64) error { // three times the table
		calls++
		return failure
	})
	if !errors.Is(err, failure) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	if !g.Write(&Request{Op: OpWrite, Length: 4 * stripeSize}) {
		t.Error("a writer waits")
	}
}
