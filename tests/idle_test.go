package tests

import (
	"testing"
	"time"
)

// TestIdle wants a connected pair that has nothing to do to do nothing: keep alive and no more.
func TestIdle(t *testing.T) {
	const (
		watch = 5 * time.Second
		most  = 0.005 // of one processor
	)
	type watched struct {
		*program
		transport string
		before    procFigures
	}
	var all []*watched
	for _, transport := range transports {
		p := startTarget(t, "--volume", "mem:64MiB")
		hold := p.startInit(t, transport, "connect", "-k", "2", "--hold")
		eventually(t, 10*time.Second, "a connection", func() bool { return hold.stderr.String() != "" })
		all = append(all, &watched{program: p.program, transport: transport}, &watched{program: hold, transport: transport})
	}
	time.Sleep(500 * time.Millisecond) // what set-up left to do, as collecting garbage
	for _, w := range all {
		w.before = w.figures(t)
	}
	began := time.Now()
	time.Sleep(watch)
	for _, w := range all {
		used := w.figures(t).cpu - w.before.cpu
		if w.before.cpu == 0 {
			t.Skip("the kernel keeps no statistics of its scheduler")
		}
		share := used.Seconds() / time.Since(began).Seconds()
		t.Logf("%s over %s: %.2f%% of a processor", w.name, w.transport, 100*share)
		if share >= most {
			t.Errorf("%s over %s uses %.2f%% of a processor while idle, %v in %v", w.name, w.transport, 100*share, used, watch)
		}
		select {
		case <-w.ended:
			t.Errorf("%s over %s ended: %s", w.name, w.transport, w.stderr.String())
		default:
		}
	}
}
