package host

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		c := connect(t, f) // KATO 5 s
		time.Sleep(51 * time.Second)
		if n := f.commands("Keep Alive"); n < 20 || n > 21 {
			t.Errorf("%d keep alives in 51 s, one each 2.5 s is right", n)
		}
		if c.Counters().KeepAlives.Load() == 0 || c.Err() != nil {
			t.Error(c.Err())
		}
		closeController(t, c)
	})
}

// TestKeepAliveLoss lets the target fall silent at various moments: the loss is known within
// KATO of its last sign of life.
func TestKeepAliveLoss(t *testing.T) {
	for _, at := range []time.Duration{0, time.Second, 1300 * time.Millisecond, 2600 * time.Millisecond, 3 * time.Second, 4900 * time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeTarget()
			c := connect(t, f)
			time.Sleep(at)
			if _, err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			last := time.Now()
			f.setHook(func(*fakeQueue, *Request, *nvme.Completion) verdict { return never })
			pending := make(chan error)
			go func() {
				_, err := c.Ping(t.Context())
				pending <- err
			}()
			if err := <-pending; !errors.Is(err, ErrKeepAlive) || !errors.Is(err, nvme.StatusHostPathError) {
				t.Errorf("outstanding command: %v", err)
			}
			<-c.Done()
			if took := time.Since(last); took > 5*time.Second || took < 2500*time.Millisecond {
				t.Errorf("silence from %v was noticed after %v", at, took)
			}
			if err := c.Close(); !errors.Is(err, ErrKeepAlive) {
				t.Error(err)
			}
		})
	}
}

// TestTrafficBasedKeepAlive: with TBKAS, traffic makes Keep Alive unnecessary, and only then.
func TestTrafficBasedKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.identity.CTRATT = nvme.CTRATTTBKAS
		c := connect(t, f)
		for range 50 {
			time.Sleep(time.Second)
			if _, err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := f.commands("Keep Alive"); n != 0 {
			t.Errorf("%d keep alives despite traffic", n)
		}
		time.Sleep(50 * time.Second)
		if n := f.commands("Keep Alive"); n < 10 {
			t.Errorf("%d keep alives in 50 s without traffic", n)
		}
		closeController(t, c)
	})
}

func TestKeepAliveRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		c := connect(t, f)
		f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			if r.Cmd.Opcode() == nvme.OpKeepAlive {
				cqe.SetStatus(nvme.StatusInternalError)
				return answered
			}
			return usual
		})
		time.Sleep(30 * time.Second)
		if c.Err() != nil || c.Counters().KeepAliveFailures.Load() == 0 {
			t.Errorf("a refusal is a sign of life: %v, %d", c.Err(), c.Counters().KeepAliveFailures.Load())
		}
		closeController(t, c)
	})
}

func TestNoKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		c := connect(t, f, func(c *Config) { c.KATO = -1 })
		time.Sleep(time.Hour)
		if f.kato != 0 || f.commands("Keep Alive") != 0 {
			t.Errorf("KATO %d, %d keep alives", f.kato, f.commands("Keep Alive"))
		}
		closeController(t, c)
	})
}
