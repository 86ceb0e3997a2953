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
