package soon

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		late, closed := make(chan int, 1), make(chan int)
		time.AfterFunc(59*time.Second, func() { late <- 7 })
		close(closed)
		if v, ok := Receive(closed); v != 0 || !ok || time.Since(began) != 0 {
			t.Errorf("closed: %d, %v after %v", v, ok, time.Since(began))
		}
		if v, ok := Receive(late); v != 7 || !ok || time.Since(began) != 59*time.Second {
			t.Errorf("late: %d, %v after %v", v, ok, time.Since(began))
		}
		if v, ok := Receive(late); v != 0 || ok {
			t.Errorf("nothing: %d, %v", v, ok)
		}
	})
}

func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if <-After(20 * time.Second); time.Since(began) != 20*time.Second {
			t.Errorf("after %v", time.Since(began))
		}
	})
}

func TestStopwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := Start()
		time.Sleep(1234 * time.Millisecond)
		if d := w.Elapsed(); d != 1234*time.Millisecond {
			t.Errorf("%v", d)
		}
		w.Stop()
		time.Sleep(time.Second)
		if d := w.Elapsed(); d != 1234*time.Millisecond {
			t.Errorf("stopped: %v", d)
		}
		w = Start()
		w.last = w.last.Add(-time.Hour) // it stood still
		if w.Stop(); w.Elapsed() != most {
			t.Errorf("after a standstill: %v", w.Elapsed())
		}
	})
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if ok := Until(func() bool { return time.Since(began) >= 59*time.Second }); !ok || time.Since(began) != 59*time.Second {
			t.Errorf("late: %v after %v", ok, time.Since(began))
		}
		if Until(func() bool { return false }) {
			t.Error("never: true")
		}
	})
}
