package main

import (
	"math"
	"testing"
	"time"
)

// Each target has a turn before any has a second; then the quickest to finish comes first.
func TestNext(t *testing.T) {
	slow, quick, unknown := target{"a", "FuzzSlow"}, target{"b", "FuzzQuick"}, target{"c", "FuzzUnknown"}
	all := []target{slow, quick, unknown}
	needs := map[target]time.Duration{}
	for _, turn := range []struct {
		target
		left int
		rate float64
	}{{slow, 1000, 1}, {quick, 1000, 100}, {unknown, 1000, 0}, {quick, 900, 100}, {quick, 200_000, 100}, {slow, 900, 1}} {
		if got := all[next(all, needs)]; got != turn.target {
			t.Fatalf("%v, want %v, after %v", got, turn.target, needs)
		}
		needs[turn.target] = needed(turn.left, turn.rate)
	}
	if needs[unknown] != math.MaxInt64 || needs[slow] != 15*time.Minute {
		t.Error(needs)
	}
}
