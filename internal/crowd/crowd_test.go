package crowd

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

// TestYield: addresses that ask again and again have equal shares, a new address always gets a place, and one that has
// as many as any other doesn't take any from them.
func TestYield(t *testing.T) {
	const places = 60
	var c Crowd[int]
	taken, has := 0, map[int]int{}
	ask := func(n int) bool {
		if taken == places {
			m := c.Yield(addr(n))
			if m == nil {
				return false
			}
			has[m.Conn]--
			taken--
		}
		c.Add(addr(n), n)
		has[n]++
		taken++
		return true
	}
	for n := 1; n <= 6; n++ {
		for range 2 * places {
			for k := 1; k <= n; k++ {
				ask(k)
			}
		}
		for k := 1; k <= n; k++ {
			if has[k] != places/n {
				t.Errorf("%d addresses: number %d has %d of %d places", n, k, has[k], places)
			}
		}
	}
	if !ask(7) || has[7] != 1 {
		t.Error("who comes for the first time finds no place")
	}
	if ask(1) {
		t.Error("an address took the place of one that has as little")
	}
}

// TestForgedAddresses: if each address comes only once, a member stays until all places were replaced.
func TestForgedAddresses(t *testing.T) {
	const places = 512
	var c Crowd[int]
	for n := range places {
		c.Add(addr(n), n)
	}
	for n := places; n < 3*places; n++ {
		m := c.Yield(addr(n))
		if m == nil || m.Conn != n-places {
			t.Fatalf("number %d takes the place of %v, want that of the oldest", n, m)
		}
		c.Add(addr(n), n)
	}
}

// TestAgainstModel compares random changes with a simple list.
func TestAgainstModel(t *testing.T) {
	var c Crowd[int]
	var all []*Member[int] // in the order in which they came
	count := func(a int) (n int) {
		for _, m := range all {
			if m.Conn == a {
				n++
			}
		}
		return n
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		a := r.IntN(12)
		switch r.IntN(5) {
		case 0, 1:
			all = append(all, c.Add(addr(a), a))
		case 2:
			if len(all) > 0 {
				i := r.IntN(len(all))
				c.Remove(all[i])
				c.Remove(all[i])
				all = slices.Delete(all, i, i+1)
			}
		default:
			want, most := -1, count(a)
			for i, m := range all {
				if n := count(m.Conn); n > most {
					want, most = i, n
				}
			}
			got := c.Yield(addr(a))
			if (got == nil) != (want < 0) || got != nil && got != all[want] {
				t.Fatalf("%v gives way to %d, want number %d of %d", got, a, want, len(all))
			}
			if got != nil {
				all = slices.Delete(all, want, want+1)
			}
		}
	}
	for _, m := range all {
		c.Remove(m)
	}
	if len(c.peers)+c.most.Len() != 0 {
		t.Errorf("%d addresses and %d of the heap are left", len(c.peers), c.most.Len())
	}
}
