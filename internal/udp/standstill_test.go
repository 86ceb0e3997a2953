//go:build linux && go1.26

package udp

import (
	"runtime"
	"testing"
	"time"
)

// The world must stop soon also while a receiver blocks again and again. Without the timer this
// finds a standstill of a minute within half a minute or so; the short run here only finds what
// happens all the time. -count makes it longer.
func TestStandstill(t *testing.T) {
	c := listen(t, loop4, Config{})
	other := listen(t, loop4, Config{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		rx := make([]Received, RecvBatch)
		for {
			if _, err := c.Recv(rx); err != nil {
				return
			}
		}
	}()
	ping := []Train{trainOf(c.LocalAddr(), make([]byte, 64), 64)}
	var stats runtime.MemStats
	var worst time.Duration
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if _, err := other.Send(ping); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		runtime.ReadMemStats(&stats) // stops the world
		worst = max(worst, time.Since(began))
	}
	c.Close()
	<-ended
	if worst > 20*standstill {
		t.Errorf("a stop of the world took %v", worst)
	}
}

func TestMonitorSleepsWithoutSockets(t *testing.T) {
	users := func() int {
		monitor.mu.Lock()
		defer monitor.mu.Unlock()
		return monitor.users
	}
	before := users()
	c := listen(t, loop4, Config{})
	if n := users(); n != before+1 {
		t.Errorf("%d users with one more socket, %d before", n, before)
	}
	c.Close()
	c.Close()
	if n := users(); n != before {
		t.Errorf("%d users after it was closed, %d before", n, before)
	}
}
