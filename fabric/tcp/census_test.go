package tcp

import (
	"testing"
	"time"
)

// TestCensus: a connection that had work in one period counts until the next period is over.
func TestCensus(t *testing.T) {
	began := time.Unix(1000, 0)
	c := census{began: began}
	for i, s := range []struct{ ms, count, want int }{
		{0, 1, 1},
		{9, 2, 3},
		{10, 1, 3}, // the next period
		{25, 1, 1}, // the one after it
		{100, 1, 1},
		{110, 2, 2},
		{150, 1, 1},
	} {
		for range s.count {
			c.count(c.at(began.Add(time.Duration(s.ms) * time.Millisecond)))
		}
		if got := c.most(); got != s.want {
			t.Errorf("step %d, at %d ms: %d, want %d", i, s.ms, got, s.want)
		}
	}
}
