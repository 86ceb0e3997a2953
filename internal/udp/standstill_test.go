//go:build linux && go1.26

package udp

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/standstill"
)

// witness is another process, which writes a byte every tick: it continues while this one stands still, but not while
// the machine does.
type witness struct{ ticks *os.File }

const tick = 100 * time.Millisecond

func newWitness(t *testing.T) witness {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", fmt.Sprintf("while sleep %v; do printf .; done", tick.Seconds()))
	cmd.Stdout = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		r.Close()
	})
	return witness{r}
}

// ran is how long the machine has run since the last call.
func (w witness) ran(t *testing.T) time.Duration {
	t.Helper()
	n, err := unix.IoctlGetInt(int(w.ticks.Fd()), unix.TIOCINQ)
	if err == nil {
		_, err = io.CopyN(io.Discard, w.ticks, int64(n))
	}
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * tick
}

// The world must stop soon even while a receiver blocks again and again. Without the timer this test finds a standstill
// of a minute within half a minute or so; the short run here only finds what happens all the time. -count makes it
// longer.
func TestStandstill(t *testing.T) {
	w := newWitness(t)
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
		w.ran(t)
		began := time.Now()
		runtime.ReadMemStats(&stats) // stops the world
		if time.Since(began) > 10*standstill.Bound {
			worst = max(worst, w.ran(t))
		}
	}
	c.Close()
	<-ended
	if worst > 10*standstill.Bound {
		t.Errorf("a stop of the world took %v in which others ran", worst)
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
