package busypoll

import (
	"testing"
	"time"
)

// crowded simulates waits on a machine where another program wants the processors: looking delays the peer now and
// then, and sleeping always waits a little longer than a look that succeeds.
type crowded struct {
	asleep time.Duration
	n      int
}

func (c *crowded) wait(looked time.Duration) time.Duration {
	c.n++
	switch {
	case looked == 0:
		return c.asleep
	case c.n%5 == 0:
		return 400 * time.Microsecond
	}
	return 15 * time.Microsecond
}

// TestRivals: it sleeps if looks fail because others want the processors.
func TestRivals(t *testing.T) {
	c := crowded{asleep: 25 * time.Microsecond}
	var p Poller
	mean, _ := waitsOf(&p, 100_000, 250*time.Microsecond, c.wait)
	if mean > 30*time.Microsecond {
		t.Errorf("a wait takes %v in the mean, want about %v", mean, c.asleep)
	}
}

// TestRivalsOfTheMachine: if sleeping doesn't make waits shorter, it is tried only now and then.
func TestRivalsOfTheMachine(t *testing.T) {
	c := crowded{asleep: 100 * time.Microsecond}
	var p Poller
	slept := 0
	waitsOf(&p, 100_000, 250*time.Microsecond, func(looked time.Duration) time.Duration {
		if p.rivals.asleep() {
			slept++
		}
		return c.wait(looked)
	})
	if slept == 0 || slept > 100_000/50 {
		t.Errorf("%d of 100,000 waits asleep because of rivals, want some and at most one in 50", slept)
	}
}

// TestRivalsLeave: it looks again when others no longer want the processors.
func TestRivalsLeave(t *testing.T) {
	c := crowded{asleep: 25 * time.Microsecond}
	var p Poller
	waitsOf(&p, 1000, 250*time.Microsecond, c.wait)
	if !p.rivals.asleep() {
		t.Fatal("it looks though others want the processors")
	}
	slept := 0
	waitsOf(&p, 100_000, 250*time.Microsecond, func(looked time.Duration) time.Duration {
		if looked == 0 {
			slept++
			return 60 * time.Microsecond
		}
		return 15 * time.Microsecond
	})
	if slept > 2*minAsleep {
		t.Errorf("it slept in %d of 100,000 waits after they had left", slept)
	}
}
