//go:build go1.26

package standstill

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUse: a timer is due while there are users, the sooner the more they block, and none when the last has left.
func TestUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &monitor
		defer func() { m.timer = nil }() // it is the bubble's
		next := func() time.Duration {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.next
		}
		pauses := func(want ...time.Duration) {
			t.Helper()
			for _, w := range want {
				time.Sleep(next())
				synctest.Wait()
				if got := next(); got != w {
					t.Errorf("the timer sleeps for %v, want %v", got, w)
				}
			}
		}
		for range 2 { // the second time the timer that was stopped goes again
			Enter()
			Enter()
			pauses(2*Bound, 4*Bound)
			Leave()
			if n := Users(); n != 1 {
				t.Errorf("%d users, want 1", n)
			}
			for range 100 {
				Blocks()
			}
			pauses(Bound, 2*Bound)
			Leave()
			pauses(2*Bound, 2*Bound)
			if n := Users(); n != 0 {
				t.Errorf("%d users, want none", n)
			}
		}
	})
}

func TestPause(t *testing.T) {
	for _, c := range []struct {
		last  time.Duration
		calls uint64
		want  time.Duration
	}{
		{Bound, 0, 2 * Bound},
		{Bound, 2, 2 * Bound},
		{Bound, 3, Bound},
		{IdleBound / 2, 20, IdleBound},
		{IdleBound, 40, IdleBound},
		{IdleBound, 41, Bound},
	} {
		if got := pause(c.last, c.calls); got != c.want {
			t.Errorf("after %v with %d calls the timer sleeps for %v, want %v", c.last, c.calls, got, c.want)
		}
	}
}
