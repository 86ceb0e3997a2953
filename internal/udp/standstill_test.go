//go:build linux && go1.26

package udp

import (
	"runtime"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/standstill"
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
	if worst > 20*standstill.Bound {
		t.Errorf("a stop of the world took %v", worst)
	}
}

func TestMonitorSleepsWithoutSockets(t *testing.T) {
	before := standstill.Users()
	c := listen(t, loop4, Config{})
	if n := standstill.Users(); n != before+1 {
		t.Errorf("%d users with one more socket, %d before", n, before)
	}
	c.Close()
	c.Close()
	if n := standstill.Users(); n != before {
		t.Errorf("%d users after it was closed, %d before", n, before)
	}
}
