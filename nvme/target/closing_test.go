package target

import (
	"runtime"
	"testing"
)

// TestClosedMeanwhile: a target knows a queue until both its connection and what ends it for the engine are done: if the
// engine began to end it by itself, the transport may be done first, and Target.Close must wait for the other.
func TestClosedMeanwhile(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	q := s.admin.q
	q.ctrl.mu.Lock() // which ending the controller takes
	done := make(chan struct{})
	go func() { defer close(done); q.Closing(errLost) }()
	for q.state.Load() != queueDown {
		runtime.Gosched()
	}
	s.admin.hangUp(errLost)
	if n := tg.connections(); n != 2 {
		t.Errorf("%d connections while the engine still ends one, want 2", n)
	}
	q.ctrl.mu.Unlock()
	<-done
	s.io.waitClosed()
	if n := tg.connections(); n != 0 {
		t.Errorf("%d connections, want 0", n)
	}
}
