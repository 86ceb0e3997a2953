package udp

import (
	"testing"
	"time"
)

const shortLook = 50 * time.Microsecond

// looks counts how often in n waits of a length a poller looks.
func looks(p *poller, n int, wait time.Duration) (count int) {
	for range n {
		if p.look(shortLook) {
			count++
		}
		p.waited(wait)
	}
	return count
}

func TestPollerLooksWhileWaitsAreShort(t *testing.T) {
	var p poller
	if n := looks(&p, 1000, 20*time.Microsecond); n != 1000 {
		t.Errorf("looked %d times of 1000 though each wait was short", n)
	}
}

func TestPollerGivesUpWhereNothingComes(t *testing.T) {
	var p poller
	if n := looks(&p, 100_000, time.Second); n > 100_000/lookAgain+10 {
		t.Errorf("looked %d times in 100,000 long waits", n)
	}
}

func TestPollerComesBack(t *testing.T) {
	var p poller
	looks(&p, 1000, time.Minute)
	looks(&p, 20, 10*time.Microsecond)
	if n := looks(&p, 100, 10*time.Microsecond); n != 100 {
		t.Errorf("looked %d times of 100 after waits had become short", n)
	}
}

// TestPollerTriesAgain: a sleep that takes longer than what was waited for doesn't keep it from looking.
func TestPollerTriesAgain(t *testing.T) {
	var p poller
	p.usual = 2 * shortLook
	for n := range lookAgain + 1 {
		if p.look(shortLook) {
			if n == 0 {
				t.Error("looked at once")
			}
			return
		}
		p.waited(2 * shortLook)
	}
	t.Error("never looked again")
}

func TestLimit(t *testing.T) {
	for _, c := range []struct{ worked, longest, want time.Duration }{
		{0, 250 * time.Microsecond, shortLook},
		{60 * time.Microsecond, 250 * time.Microsecond, 120 * time.Microsecond},
		{time.Second, 250 * time.Microsecond, 250 * time.Microsecond},
		{time.Second, 20 * time.Microsecond, 20 * time.Microsecond},
		{0, time.Millisecond, 200 * time.Microsecond},
	} {
		var p poller
		if got := p.limit(c.worked, c.longest); got != c.want {
			t.Errorf("after %v of work, at most %v: %v, want %v", c.worked, c.longest, got, c.want)
		}
	}
}

// TestLimitFades: a short turn among long ones doesn't shorten the look much, and many do.
func TestLimitFades(t *testing.T) {
	var p poller
	p.limit(100*time.Microsecond, 250*time.Microsecond)
	if got, want := p.limit(0, 250*time.Microsecond), 175*time.Microsecond; got != want {
		t.Errorf("after a turn of 100 µs and a short one: %v, want %v", got, want)
	}
	p.vain()
	if got := p.limit(0, 250*time.Microsecond); got != shortLook {
		t.Errorf("after a look in vain and a short turn: %v, want %v", got, shortLook)
	}
	p.limit(100*time.Microsecond, 250*time.Microsecond)
	for range 50 {
		p.limit(0, 250*time.Microsecond)
	}
	if got := p.limit(0, 250*time.Microsecond); got != shortLook {
		t.Errorf("after many short turns: %v, want %v", got, shortLook)
	}
}
