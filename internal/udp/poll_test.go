package udp

import (
	"testing"
	"time"
)

// looks counts how often in n waits a poller looks that finds something as hit says.
func looks(p *poller, n int, hit func(i int) bool) (count int) {
	for i := range n {
		if !p.look() {
			continue
		}
		count++
		if hit(i) {
			p.found()
		} else {
			p.missed()
		}
	}
	return count
}

func TestPollerLooksWhileItFinds(t *testing.T) {
	var p poller
	if n := looks(&p, 1000, func(int) bool { return true }); n != 1000 {
		t.Errorf("looked %d times of 1000 though each found something", n)
	}
}

func TestPollerGivesUpWhereNothingComes(t *testing.T) {
	var p poller
	never := func(int) bool { return false }
	if n := looks(&p, 100_000, never); n > 120 {
		t.Errorf("looked %d times in 100,000 waits in vain", n)
	}
}

func TestPollerComesBack(t *testing.T) {
	var p poller
	looks(&p, 100_000, func(int) bool { return false })
	// Within the longest pause it looks again, and then stays with it.
	looks(&p, 1<<maxMisses, func(int) bool { return true })
	if n := looks(&p, 100, func(int) bool { return true }); n != 100 {
		t.Errorf("looked %d times of 100 after something came", n)
	}
}

func TestLookTime(t *testing.T) {
	for _, c := range []struct{ worked, longest, want time.Duration }{
		{0, 250 * time.Microsecond, shortLook},
		{120 * time.Microsecond, 250 * time.Microsecond, 120 * time.Microsecond},
		{time.Second, 250 * time.Microsecond, 250 * time.Microsecond},
		{time.Second, 20 * time.Microsecond, 20 * time.Microsecond},
	} {
		if got := lookTime(c.worked, c.longest); got != c.want {
			t.Errorf("after %v of work, at most %v: %v, want %v", c.worked, c.longest, got, c.want)
		}
	}
}
