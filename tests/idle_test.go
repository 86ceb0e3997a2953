package tests

import (
	"testing"
	"time"
)

// TestIdle wants an idle connected pair to do nothing except keep alive.
func TestIdle(t *testing.T) {
	alone(t)
	var all []*idler
	for _, transport := range transports {
		p := startTarget(t, "--volume", "mem:64MiB")
		hold := p.startInit(t, transport, "connect", "-k", "2", "--hold")
		eventually(t, 10*time.Second, "a connection", func() bool { return hold.stderr.String() != "" })
		all = append(all, &idler{p.program, transport}, &idler{hold, transport})
	}
	time.Sleep(500 * time.Millisecond) // work left over from set-up, such as garbage collection
	// An idle program is idle in one of several watches, whatever a busy machine adds to the others.
	for watches := 3; len(all) > 0; watches-- {
		if watches == 0 {
			t.Fatal("not idle in any watch")
		}
		all = watchIdlers(t, all)
	}
}

// idler is a program that only holds its connection.
type idler struct {
	*program
	transport string
}

// watchIdlers watches them for a while, and returns those that weren't idle.
func watchIdlers(t *testing.T, all []*idler) (busy []*idler) {
	t.Helper()
	const (
		watch = 5 * time.Second
		// Of one processor. Some virtual machines take so long to wake one that what little there is to do in an idle
		// pair, a few times a second, takes 1.3%. A program that polled, or had a timer each millisecond, would take more.
		most = 0.025
	)
	before := make([]time.Duration, len(all))
	for i, w := range all {
		if before[i] = w.figures(t).cpu; before[i] == 0 {
			t.Skip("the kernel keeps no statistics of its scheduler")
		}
	}
	began := time.Now()
	time.Sleep(watch)
	for i, w := range all {
		used := w.figures(t).cpu - before[i]
		share := used.Seconds() / time.Since(began).Seconds()
		t.Logf("%s over %s: %.2f%% of a processor, %v in %v", w.name, w.transport, 100*share, used, watch)
		if share >= most {
			busy = append(busy, w)
		}
		select {
		case <-w.ended:
			t.Errorf("%s over %s ended: %s", w.name, w.transport, w.stderr.String())
		default:
		}
	}
	return busy
}
