package blockdev

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// at returns a request of the blocks from first up to end.
func at(op Op, first, end int64) *Request {
	return &Request{Op: op, Offset: first * 4096, Length: (end - first) * 4096}
}

// TestRangeLockExcludes: a write, also of zeroes, excludes all other requests of its blocks, and nothing else excludes.
func TestRangeLockExcludes(t *testing.T) {
	ops := []Op{OpRead, OpWrite, OpDiscard, OpWriteZeroes}
	for _, one := range ops {
		for _, two := range ops {
			writes := slices.Contains([]Op{OpWrite, OpWriteZeroes}, one) || slices.Contains([]Op{OpWrite, OpWriteZeroes}, two)
			for _, x := range []struct {
				first, end int64
				overlap    bool
			}{{0, 3, false}, {0, 4, true}, {3, 4, true}, {4, 5, true}, {5, 9, true}, {0, 9, true}, {6, 9, false}} {
				l := newRangeLock(func(*Request) {})
				if !l.lock(at(one, 3, 6)) {
					t.Fatal("nobody else is there, but it has to wait")
				}
				if got, want := !l.lock(at(two, x.first, x.end)), writes && x.overlap; got != want {
					t.Errorf("a %v of blocks 3 to 6, then a %v of %d to %d: waits %v, want %v", one, two, x.first, x.end, got, want)
				}
			}
		}
	}
}

// TestRangeLockIsFair: who waits is passed by nobody who meets it, and goes on as soon as nobody keeps it waiting.
func TestRangeLockIsFair(t *testing.T) {
	var resumed []*Request
	l := newRangeLock(func(r *Request) { resumed = append(resumed, r) })
	has := func(r *Request, want bool) {
		t.Helper()
		if l.lock(r) != want {
			t.Errorf("a %v at %d has its range: %v", r.Op, r.Offset, !want)
		}
	}
	unlock := func(r *Request, want ...*Request) {
		t.Helper()
		resumed = nil
		if l.unlock(r); !slices.Equal(resumed, want) {
			t.Errorf("%d go on, want %d", len(resumed), len(want))
		}
		for _, r := range want {
			has(r, true) // as it asks again
		}
	}
	reader, writer, wide := at(OpRead, 0, 1), at(OpWrite, 0, 1), at(OpWrite, 0, 9)
	late, second, elsewhere, behind := at(OpRead, 0, 1), at(OpRead, 0, 2), at(OpRead, 20, 30), at(OpRead, 8, 9)
	has(reader, true)
	has(writer, false)
	has(late, false)
	has(second, false)
	has(wide, false)
	has(behind, false) // nobody is at its block, but wide was first
	has(elsewhere, true)
	unlock(elsewhere)
	unlock(reader, writer)
	unlock(writer, late, second)
	unlock(late)
	unlock(second, wide)
	unlock(wide, behind)
	unlock(behind)
	if len(l.writers)+len(l.others) != 0 || !l.waiting.empty() || slices.Max(l.here[:]) != 0 {
		t.Error("somebody is left")
	}
	unlock(behind) // has nothing any more
}

// TestRangeLockCounts: a read that locks nothing learns of each write that was under way in its stripes, and of none
// that ended before or began afterwards.
func TestRangeLockCounts(t *testing.T) {
	const stripe = stripeSize / 4096
	l := newRangeLock(func(*Request) {})
	r := at(OpRead, 3*stripe-1, 4*stripe+1) // of stripes 2, 3 and 4
	for _, x := range []struct {
		w    *Request
		seen bool
	}{
		{at(OpWrite, 0, 2*stripe), false},
		{at(OpWrite, 2*stripe, 2*stripe+1), true},
		{at(OpWriteZeroes, 3*stripe, 3*stripe+1), true},
		{at(OpWrite, 4*stripe, 9*stripe), true},
		{at(OpWrite, 5*stripe, 5*stripe+1), false},
		{at(OpWriteZeroes, 0, 1<<30), true}, // everything, more than the table has entries
		{at(OpRead, 3*stripe, 3*stripe+1), false},
		{at(OpDiscard, 3*stripe, 3*stripe+1), false},
	} {
		before := l.ended(r)
		l.lock(x.w)
		during := l.ended(r)
		if seen := l.begun(r) != before; seen != x.seen {
			t.Errorf("a %v of %d at %d begins: seen %v, want %v", x.w.Op, x.w.Length, x.w.Offset, seen, x.seen)
		}
		l.unlock(x.w)
		for name, ended := range map[string]uint64{"ends": during, "begins and ends": before} {
			if seen := l.begun(r) != ended; seen != x.seen {
				t.Errorf("a %v of %d at %d %s: seen %v, want %v", x.w.Op, x.w.Length, x.w.Offset, name, seen, x.seen)
			}
		}
		if l.begun(r) != l.ended(r) {
			t.Errorf("a %v of %d at %d is seen when it is over", x.w.Op, x.w.Length, x.w.Offset)
		}
	}
}

// TestRangeLockModel: whatever the ranges are, each request goes on as soon as no earlier one of its blocks is left that
// excludes it, and not before.
func TestRangeLockModel(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		unit := []int64{1, 7, rangeEntries * stripeSize / 4096 / 2}[seed%3] // within a stripe, across some, and over the table
		var all []*Request                                                  // that aren't done, in order of arrival
		l := newRangeLock(func(*Request) {})
		for step := range 200 {
			if i := rnd.IntN(24); i >= len(all) {
				first := rnd.Int64N(8)
				end := first + 1 + rnd.Int64N(4)
				all = append(all, at([]Op{OpRead, OpWrite, OpDiscard, OpWriteZeroes}[rnd.IntN(4)], first*unit, end*unit))
				l.lock(all[len(all)-1])
			} else if all[i].locked {
				l.unlock(all[i])
				all = slices.Delete(all, i, i+1)
			}
			for i, r := range all {
				if want := !slices.ContainsFunc(all[:i], r.excludes); r.locked != want {
					t.Fatalf("seed %d, step %d: a %v of %d at %d has its range: %v", seed, step, r.Op, r.Length, r.Offset, r.locked)
				}
			}
		}
	}
}

// BenchmarkRangeLock has one of many that have their ranges, while others wait elsewhere, give its range back and take it
// again.
func BenchmarkRangeLock(b *testing.B) {
	for _, waiting := range []int{0, 8192} {
		for _, depth := range []int64{1, 32, 256} {
			b.Run(fmt.Sprintf("waiting=%d/depth=%d", waiting, depth), func(b *testing.B) {
				l := newRangeLock(func(*Request) {})
				for range 1 + waiting {
					l.lock(at(OpWrite, 0, 1))
				}
				var all []*Request
				for i := range depth {
					all = append(all, at(OpWrite, 64*(i+1), 64*(i+1)+1))
					l.lock(all[i])
				}
				for i := 0; b.Loop(); i++ {
					r := all[i%len(all)]
					l.unlock(r)
					l.lock(r)
				}
			})
		}
	}
}
