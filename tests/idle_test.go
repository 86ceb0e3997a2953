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
		most  = 0.005 // of one processor
		// Some virtual machines take so long to wake a processor that the few things there are to do take 1.3%: then
		// they must be few. Go's own threads have some 100 turns a second; a timer each 10 ms would add as many.
		mostSlowly, mostTurns = 0.025, 150.0 // and turns a second
	)
	before := make([]procFigures, len(all))
	for i, w := range all {
		if before[i] = w.figures(t); before[i].cpu == 0 {
			t.Skip("the kernel keeps no statistics of its scheduler")
		}
	}
	began := time.Now()
	time.Sleep(watch)
	for i, w := range all {
		now := w.figures(t)
		took := time.Since(began).Seconds()
		share, turns := (now.cpu-before[i].cpu).Seconds()/took, float64(now.turns-before[i].turns)/took
		t.Logf("%s over %s: %.2f%% of a processor in %v, %.0f turns a second", w.name, w.transport, 100*share, watch, turns)
		if share >= mostSlowly || share >= most && turns >= mostTurns {
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
