package tcp_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestVirtualTime: target and host of the example run in a bubble of virtual time, as a program's own tests may need
// them to, and keep their connection alive there.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := useMemoryNetwork(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < time.Hour {
			t.Errorf("it took %v", took)
		}
	})
}
