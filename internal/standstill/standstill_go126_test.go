//go:build go1.26

package standstill

import (
	"testing"
	"time"
)

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
