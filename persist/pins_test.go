package persist

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// somePins returns pins of n blocks.
func somePins(t *testing.T, n int) *pins {
	p, err := newPins(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return &p
}

// TestPins compares random operations with counters that are obviously right.
func TestPins(t *testing.T) {
	const n = 21
	p := somePins(t, n)
	var views [n]int
	var gone [n]bool
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		i := rnd.IntN(n)
		k := together(i, 1+rnd.IntN(n-i))
		var freed, want uint8
		switch rnd.IntN(5) {
		case 0, 1:
			can := !slices.Contains(views[i:i+k], mostPins)
			if p.pin(i, k) != can {
				t.Fatalf("blocks %d and %d more with views %v: pinned %v", i, k-1, views[i:i+k], !can)
			}
			for j := i; can && j < i+k; j++ {
				views[j]++
			}
		case 2, 3:
			if slices.Contains(views[i:i+k], 0) {
				continue
			}
			freed = p.unpin(i, k)
			for j := i; j < i+k; j++ {
				if views[j]--; views[j] == 0 && gone[j] {
					gone[j], want = false, want|1<<(j-i)
				}
			}
		default:
			if slices.Contains(gone[i:i+k], true) {
				continue // no map named it
			}
			freed = p.retire(i, k)
			for j := i; j < i+k; j++ {
				if gone[j] = views[j] > 0; !gone[j] {
					want |= 1 << (j - i)
				}
			}
		}
		if freed != want {
			t.Fatalf("blocks %d and %d more: %#b freed, want %#b", i, k-1, freed, want)
		}
	}
}

// TestPinsLast: the last of any number of blocks can have views.
func TestPinsLast(t *testing.T) {
	for n := 1; n <= 2*lanes+1; n++ {
		p := somePins(t, n)
		if !p.pin(n-1, 1) || p.unpin(n-1, 1) != 0 || p.retire(n-1, 1) != 1 {
			t.Errorf("the last of %d blocks", n)
		}
	}
}

// TestPinsMost: a block can have this many views and no more, and its neighbours aren't affected.
func TestPinsMost(t *testing.T) {
	p := somePins(t, lanes)
	for range mostPins {
		if !p.pin(3, 1) {
			t.Fatal("refused")
		}
	}
	if p.pin(3, 1) || p.pin(2, 3) {
		t.Error("one view too many")
	}
	if p.retire(0, lanes) != 0xff&^(1<<3) {
		t.Error("the neighbours aren't free")
	}
	for i := range mostPins {
		if freed := p.unpin(3, 1); freed != 0 != (i == mostPins-1) {
			t.Fatalf("after %d of %d: %#b", i+1, mostPins, freed)
		}
	}
}

// TestPinsRace: when several release a block at once, exactly one is told that it is free.
func TestPinsRace(t *testing.T) {
	p := somePins(t, lanes)
	for range 200 {
		const views = 4
		for range views {
			p.pin(0, lanes)
		}
		var all sync.WaitGroup
		freed := make([]uint8, views+1)
		for i := range views {
			all.Go(func() { freed[i] = p.unpin(0, lanes) })
		}
		all.Go(func() { freed[views] = p.retire(0, lanes) })
		all.Wait()
		var seen uint8
		for _, f := range freed {
			if seen&f != 0 {
				t.Fatalf("freed twice: %b", freed)
			}
			seen |= f
		}
		if seen != 0xff {
			t.Fatalf("freed: %b", freed)
		}
	}
}

func TestRuns(t *testing.T) {
	for set := range 256 {
		var back uint8
		last := -1
		runs(uint8(set), func(first, n int) {
			if first <= last || n < 1 {
				t.Fatalf("%#b: %d from %d on, after %d", set, n, first, last)
			}
			last = first + n
			back |= uint8(1<<n-1) << first
		})
		if back != uint8(set) {
			t.Errorf("%#b: %#b", set, back)
		}
	}
}
