package crash

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// wantStates fails t unless exactly these states may be left if the power fails.
func wantStates(t *testing.T, m *Medium, want ...string) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	for range 100 * len(want) {
		s := string(m.Crash(rnd))
		if !slices.Contains(want, s) {
			t.Fatalf("state %q, want one of %q", s, want)
		}
		seen[s] = true
	}
	if len(seen) != len(want) {
		t.Errorf("random choice found %d of %d states", len(seen), len(want))
	}
}

func TestMediumStates(t *testing.T) {
	m := Restore([]byte("aabbcc"), 2)
	wantStates(t, m, "aabbcc")
	m.WriteAt([]byte("11"), 0)
	wantStates(t, m, "aabbcc", "11bbcc")
	m.WriteAt([]byte("23"), 1) // half of the first unit, and half of the second
	wantStates(t, m, "aabbcc", "11bbcc", "12bbcc", "aa3bcc", "113bcc", "123bcc")
	m.WriteBack(0, 1)
	wantStates(t, m, "aabbcc", "11bbcc", "12bbcc", "aa3bcc", "113bcc", "123bcc") // no fence yet
	m.WriteAt([]byte("44"), 0)                                                   // after the write back
	m.Fence()
	wantStates(t, m, "12bbcc", "44bbcc", "123bcc", "443bcc")
	m.Fence() // covers nothing
	wantStates(t, m, "12bbcc", "44bbcc", "123bcc", "443bcc")
	m.WriteBack(0, m.Size())
	m.Fence()
	wantStates(t, m, "443bcc")
	m.WriteAt([]byte("44"), 0) // nothing new
	if m.Pending() != 0 {
		t.Errorf("%d units pending", m.Pending())
	}
	m.Zero(4, 2)
	wantStates(t, m, "443bcc", "443b\x00\x00")
	got := make([]byte, 6)
	if m.ReadAt(got, 0); string(got) != "443b\x00\x00" {
		t.Errorf("reads %q", got)
	}
	m.Forget()
	wantStates(t, m, "443bcc")
	if m.ReadAt(got, 0); string(got) != "443b\x00\x00" {
		t.Errorf("reads %q after a failed write-back", got)
	}
}

// TestMediumClone: a clone has the same states, and goes on by itself.
func TestMediumClone(t *testing.T) {
	m := Restore([]byte("aabb"), 2)
	m.WriteAt([]byte("11"), 0)
	m.WriteBack(0, 2)
	m.WriteAt([]byte("22"), 0)
	c := m.Clone()
	wantStates(t, c, "aabb", "11bb", "22bb")
	c.Fence()
	c.WriteAt([]byte("33"), 2)
	wantStates(t, c, "11bb", "22bb", "1133", "2233")
	wantStates(t, m, "aabb", "11bb", "22bb")
	m.Fence()
	wantStates(t, m, "11bb", "22bb")
}

func TestStamp(t *testing.T) {
	old, fresh := make([]byte, 512), make([]byte, 512)
	Stamp(old, 7, 1)
	Stamp(fresh, 7, 2)
	for cut := 0; cut <= 512; cut++ {
		b := slices.Concat(fresh[:cut], old[cut:])
		seq, err := ReadStamp(b, 7)
		switch {
		case bytes.Equal(b, old):
			if seq != 1 || err != nil {
				t.Fatalf("cut at %d: %d, %v", cut, seq, err)
			}
		case bytes.Equal(b, fresh):
			if seq != 2 || err != nil {
				t.Fatalf("cut at %d: %d, %v", cut, seq, err)
			}
		case !errors.Is(err, ErrTorn):
			t.Fatalf("cut at %d: write %d, %v", cut, seq, err)
		}
	}
	if _, err := ReadStamp(old, 8); !errors.Is(err, ErrTorn) {
		t.Errorf("another block's content: %v", err)
	}
	if seq, err := ReadStamp(make([]byte, 512), 3); seq != 0 || err != nil {
		t.Errorf("zeroes: %d, %v", seq, err)
	}
	half := slices.Concat(make([]byte, 256), old[256:])
	if _, err := ReadStamp(half, 7); !errors.Is(err, ErrTorn) {
		t.Errorf("half a block: %v", err)
	}
}

func TestLedger(t *testing.T) {
	l := NewLedger(2)
	content := func(seq uint64) []byte {
		b := make([]byte, 64)
		Stamp(b, 1, seq)
		return b
	}
	want := func(floor Floor, seq uint64, kind error) {
		t.Helper()
		if err := l.Check(floor, 1, content(seq)); !errors.Is(err, kind) {
			t.Errorf("write %d: %v, want %v", seq, err, kind)
		}
	}
	start := l.Floor()
	want(start, 0, nil)
	want(start, 5, ErrInvented)
	l.Begin(1, 5)
	want(start, 5, nil) // it may be there before it is acknowledged
	l.Done(1, false)
	want(l.Floor(), 0, nil)
	flush := l.BeginFlush()
	l.Begin(1, 6)
	l.Done(1, false) // after the flush was submitted: not covered
	want(l.Floor(), 0, nil)
	l.Flushed(flush)
	want(l.Floor(), 0, ErrLost)
	want(l.Floor(), 5, nil)
	want(l.Floor(), 6, nil)
	want(start, 0, nil) // a floor taken earlier holds less
	l.Begin(1, 7)
	flush = l.BeginFlush() // covers 6, not 7
	l.Done(1, true)
	want(l.Floor(), 6, ErrLost)
	l.Flushed(flush) // takes nothing back
	want(l.Floor(), 6, ErrLost)
	l.Begin(1, 8)
	l.Failed(1)
	want(l.Floor(), 7, nil)
	want(l.Floor(), 8, nil)
	flush = l.BeginFlush()
	l.Flushed(flush)
	want(l.Floor(), 7, nil) // a flush doesn't promise a write that failed
	l.Begin(1, 9)
	l.Done(1, false)
	l.FlushFailed()
	l.Flushed(l.BeginFlush())
	want(l.Floor(), 7, nil) // nor one that a failed flush covered
	l.Begin(1, 10)
	l.Done(1, false)
	l.Flushed(l.BeginFlush())
	want(l.Floor(), 9, ErrLost)
	want(l.Floor(), 10, nil)
	l.Settle(1, 8)
	want(l.Floor(), 8, nil)
	want(l.Floor(), 7, ErrInvented)
	if err := l.CheckAll(l.Floor(), slices.Concat(make([]byte, 64), content(8))); err != nil {
		t.Error(err)
	}
}

// Each finds every content: of each unit any version, and of a group none, the first half, or all.
func TestEach(t *testing.T) {
	m := NewMedium(48, 8)
	for at, versions := range []string{"a", "bc", "", "d", "e"} {
		for _, v := range versions {
			m.WriteAt([]byte{byte(v)}, int64(at*8))
		}
	}
	var found []string
	m.Each(func(off int64) int { return int(off / 24) }, func(b []byte) {
		found = append(found, string([]byte{b[0] + '0', b[8] + '0', b[24] + '0', b[32] + '0'}))
	})
	slices.Sort(found)
	if want := 2 * 3 * 3; len(found) != want || len(slices.Compact(found)) != want {
		t.Errorf("found %q, want %d different ones", found, want)
	}
	if m.Pending() != 4 {
		t.Errorf("%d units are pending afterwards", m.Pending())
	}
}
