package busypoll

import (
	"testing"
	"time"
)

const shortLook = 50 * time.Microsecond

// looks counts how often in n waits of a length a poller looks.
func looks(p *Poller, n int, wait time.Duration) (count int) {
	for range n {
		if p.Look(shortLook) {
			count++
		}
		p.Waited(wait)
	}
	return count
}

func TestPollerLooksWhileWaitsAreShort(t *testing.T) {
	var p Poller
	if n := looks(&p, 1000, 20*time.Microsecond); n != 1000 {
		t.Errorf("looked %d times of 1000 though each wait was short", n)
	}
}

func TestPollerGivesUpWhereNothingComes(t *testing.T) {
	var p Poller
	if n := looks(&p, 100_000, time.Second); n > 100_000/lookAgain+10 {
		t.Errorf("looked %d times in 100,000 long waits", n)
	}
}

func TestPollerComesBack(t *testing.T) {
	var p Poller
	looks(&p, 1000, time.Minute)
	looks(&p, 20, 10*time.Microsecond)
	if n := looks(&p, 100, 10*time.Microsecond); n != 100 {
		t.Errorf("looked %d times of 100 after waits had become short", n)
	}
}

// TestPollerTriesAgain: a sleep that takes longer than what was waited for doesn't keep it from looking.
func TestPollerTriesAgain(t *testing.T) {
	var p Poller
	p.usual = 2 * shortLook
	for n := range lookAgain + 1 {
		if p.Look(shortLook) {
			if n == 0 {
				t.Error("looked at once")
			}
			return
		}
		p.Waited(2 * shortLook)
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
		var p Poller
		if got := p.Limit(c.worked, c.longest); got != c.want {
			t.Errorf("after %v of work, at most %v: %v, want %v", c.worked, c.longest, got, c.want)
		}
	}
}

// TestLimitFades: a short turn among long ones doesn't shorten the look much, and many do.
func TestLimitFades(t *testing.T) {
	var p Poller
	p.Limit(100*time.Microsecond, 250*time.Microsecond)
	if got, want := p.Limit(0, 250*time.Microsecond), 175*time.Microsecond; got != want {
		t.Errorf("after a turn of 100 µs and a short one: %v, want %v", got, want)
	}
	p.Looked(false)
	if got := p.Limit(0, 250*time.Microsecond); got != shortLook {
		t.Errorf("after a look in vain and a short turn: %v, want %v", got, shortLook)
	}
	p.Limit(100*time.Microsecond, 250*time.Microsecond)
	for range 50 {
		p.Limit(0, 250*time.Microsecond)
	}
	if got := p.Limit(0, 250*time.Microsecond); got != shortLook {
		t.Errorf("after many short turns: %v, want %v", got, shortLook)
	}
}

// share is which share of n short waits a Poller looks in, where one look in every vain-th finds nothing.
func share(p *Poller, n, vain int) float64 {
	count := 0
	for range n {
		if p.Look(shortLook) {
			count++
			p.Looked(count%vain != 0)
		}
		p.Waited(shortLook / 2)
	}
	return float64(count) / float64(n)
}

// TestSleepsWhereLooksAreInVain: with somebody else on the processors a third and more of the looks
// find nothing.
func TestSleepsWhereLooksAreInVain(t *testing.T) {
	p := Poller{Wary: true}
	if got := share(&p, 100_000, 20); got < 0.99 {
		t.Errorf("looks in %.2f of the waits though 19 of 20 looks find something", got)
	}
	if got := share(&p, 100_000, 3); got > 0.1 {
		t.Errorf("looks in %.2f of the waits though every third look is in vain", got)
	}
	if got := share(&p, 1000, 20); got < 0.8 {
		t.Errorf("looks in %.2f of the waits after looks had begun to find something again", got)
	}
}

func TestLongest(t *testing.T) {
	for _, c := range []struct{ asked, want time.Duration }{{0, Default}, {Off, 0}, {time.Second, time.Second}} {
		if got := Longest(c.asked); got != c.want {
			t.Errorf("asked for %v: %v, want %v", c.asked, got, c.want)
		}
	}
	for d, want := range map[time.Duration]bool{0: true, Off: true, Off - 1: false, Max: true, Max + 1: false} {
		if Valid(d) != want {
			t.Errorf("%v is valid: %v", d, !want)
		}
	}
}
