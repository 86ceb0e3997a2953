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

// TestKeepAliveByCommand: without TBKAS only Keep Alive restarts the controller's timer, whatever else is sent.
func TestKeepAliveByCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		c := connect(t, f) // KATO 5 s
		for range 100 {
			time.Sleep(500 * time.Millisecond)
			if _, err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := f.commands("Keep Alive"); n < 19 || n > 21 {
			t.Errorf("%d keep alives in 50 s, one each 2.5 s is right", n)
		}
		closeController(t, c)
	})
}

// TestKeepAliveForLateAnswers: what restarts the controller's timer is a command that arrives. Answers to commands
// that it received long ago don't show that, however many come.
func TestKeepAliveForLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.identity.CTRATT = nvme.CTRATTTBKAS
		c := connect(t, f) // KATO 5 s
		last, longest := time.Now(), time.Duration(0)
		var slow *fakeQueue
		var cids []uint16
		f.setHook(func(q *fakeQueue, r *Request, _ *nvme.Completion) verdict {
			longest, last = max(longest, time.Since(last)), time.Now()
			if r.Cmd.Opcode() != nvme.OpRead || q.attr.QID == 0 {
				return usual
			}
			slow, cids = q, append(cids, r.Cmd.CID())
			return never
		})
		n, err := c.Namespace(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		rs := make([]Request, 20)
		for i := range rs {
			rs[i].Cmd.SetIO(nvme.OpRead, n.ID, 0, 1, 0)
			rs[i].Data, rs[i].Done = make([]byte, n.BlockSize()), func(*Request) {}
			c.Queues()[0].SubmitOne(&rs[i])
		}
		synctest.Wait()
		if len(cids) != len(rs) {
			t.Fatalf("%d commands arrived of %d", len(cids), len(rs))
		}
		for _, cid := range cids {
			time.Sleep(time.Second)
			var cqe nvme.Completion
			cqe.SetCID(cid)
			slow.answer(cqe)
		}
		synctest.Wait()
		if longest = max(longest, time.Since(last)); longest >= c.Limits().KATO {
			t.Errorf("no command came for %v: the controller ends a host that is silent for %v", longest, c.Limits().KATO)
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
