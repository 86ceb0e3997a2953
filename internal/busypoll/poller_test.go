package busypoll

import (
	"testing"
	"time"
)

const shortLook = 50 * time.Microsecond

// looks counts how often a poller looks in n waits of the given length.
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

// TestPollerTriesAgain: sleeping for longer than the wait itself would have taken doesn't stop it from looking.
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

// TestLimitFades: one short turn among long ones doesn't shorten the look much, but many do.
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

// waitsOf returns the mean of n waits, each as long as wait says for the time spent looking, and how many of them were
// looked for as long as allowed.
func waitsOf(p *Poller, n int, longest time.Duration, wait func(looked time.Duration) time.Duration) (mean time.Duration, patient int) {
	var sum time.Duration
	for range n {
		limit := p.Limit(0, longest)
		if limit == longest {
			patient++
		}
		if !p.Look(limit) {
			limit = 0
		}
		d := wait(limit)
		if limit > 0 {
			p.Looked(d <= limit)
		}
		p.Waited(d)
		sum += d
	}
	return sum / time.Duration(n), patient
}

// TestPatience: of two programs that sleep because the other does, one that looks for longer wakes both for good.
func TestPatience(t *testing.T) {
	asleep := true // the peer
	peer := func(looked time.Duration) time.Duration {
		answer := 30 * time.Microsecond
		if asleep {
			answer = 180 * time.Microsecond
		}
		asleep = looked < answer // our answer comes late, too
		return answer
	}
	var p Poller
	if mean, _ := waitsOf(&p, 100_000, 250*time.Microsecond, peer); mean > 35*time.Microsecond {
		t.Errorf("a wait takes %v in the mean, want about 30 µs", mean)
	}
}

// TestPatienceInVain: it doesn't look long for what is slow by itself, nor for what comes rarely.
func TestPatienceInVain(t *testing.T) {
	for _, wait := range []time.Duration{100 * time.Microsecond, 200 * time.Microsecond, 300 * time.Microsecond, time.Second} {
		var p Poller
		_, n := waitsOf(&p, 100_000, 250*time.Microsecond, func(time.Duration) time.Duration { return wait })
		if want := 100_000 * (trialWaits + 1) / (trialWaits + trialPause); n > want {
			t.Errorf("%d of 100,000 waits of %v are patient, want at most %d", n, wait, want)
		}
	}
}

// TestPatienceEnds: it is kept up where it makes waits short, and over when it no longer does.
func TestPatienceEnds(t *testing.T) {
	const slow, longest = 200 * time.Microsecond, 250 * time.Microsecond
	var p Poller
	_, n := waitsOf(&p, 1000, longest, func(looked time.Duration) time.Duration {
		if looked < longest {
			return slow
		}
		return slow * 3 / 4
	})
	if want := 1000 - 2*trialWaits; n < want {
		t.Errorf("%d of 1000 waits are patient though it makes them short, want %d", n, want)
	}
	if _, n = waitsOf(&p, 200, longest, func(time.Duration) time.Duration { return slow }); n > 2*trialWaits {
		t.Errorf("%d of 200 waits are patient that take as long as without", n)
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
