package multipath

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestLoss: no request fails when a path is lost under load, and the path comes back as soon as it can.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		defer r.close(s)
		l := startLoad(n)
		for round := range 3 {
			cut := r.links[round%2]
			time.Sleep(100 * time.Millisecond)
			before := l.done.Load()
			cut.cut()
			synctest.Wait()
			if state(s, round%2) != Reconnecting {
				t.Errorf("the path is %v", state(s, round%2))
			}
			time.Sleep(time.Second)
			if l.done.Load() < before+100 {
				t.Error("requests stood still")
			}
			cut.restore(r.tgt)
			time.Sleep(2 * time.Second)
			if state(s, round%2) != Live {
				t.Errorf("the path is %v: %v", state(s, round%2), s.Paths()[round%2].Err)
			}
		}
		l.end(t)
		p := s.Paths()[0]
		if c := p.Counters; c.Connects.Load() != 3 || c.Losses.Load() != 2 || c.Failures.Load() == 0 {
			t.Errorf("%d connects, %d losses, %d failures", c.Connects.Load(), c.Losses.Load(), c.Failures.Load())
		}
	})
}

// TestBackoff: attempts come after pauses that double, up to one second.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, _ := r.connect(func(c *Config) { c.ReconnectDelay = time.Second; c.ControllerLoss = 5 * time.Second })
		defer r.close(s)
		r.links[0].cut()
		at := time.Now()
		before := r.links[0].tries()
		for i, ms := range []int{100, 300, 700, 1500, 2500, 3500, 4500} {
			time.Sleep(time.Duration(ms)*time.Millisecond - time.Since(at) - time.Nanosecond)
			synctest.Wait()
			if got := r.links[0].tries() - before; got != i {
				t.Fatalf("%d attempts before %d ms, want %d", got, ms, i)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if got := r.links[0].tries() - before; got != i+1 {
				t.Fatalf("%d attempts after %d ms, want %d", got, ms, i+1)
			}
		}
		<-s.Done()
		if took := time.Since(at); took != 5*time.Second {
			t.Errorf("given up after %v", took)
		}
		if err := s.Err(); !errors.Is(err, ErrGivenUp) || !errors.Is(err, ErrNoPath) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("because of %v", err)
		}
		if state(s, 0) != GivenUp {
			t.Errorf("it is %v", state(s, 0))
		}
	})
}

// TestAllLost: requests wait while no path is live, and continue when one comes back.
func TestAllLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect(func(c *Config) { c.ControllerLoss = time.Minute })
		defer r.close(s)
		l := startLoad(n)
		time.Sleep(100 * time.Millisecond)
		r.links[0].cut()
		r.links[1].cut()
		time.Sleep(20 * time.Second)
		if s.Waiting() != 8 || s.Counters().Waited.Load() < 8 {
			t.Errorf("%d requests wait", s.Waiting())
		}
		done := l.done.Load()
		r.links[1].restore(r.tgt)
		time.Sleep(10 * time.Second)
		if s.Waiting() != 0 || l.done.Load() < done+100 {
			t.Errorf("%d requests wait, %d ended", s.Waiting(), l.done.Load()-done)
		}
		l.end(t)
	})
}

// TestWaitsInVain: after the controller loss time, or fast_io_fail_tmo, requests fail and the error says why; later
// ones fail at once, until a path is back.
func TestWaitsInVain(t *testing.T) {
	for name, c := range map[string]struct {
		fast, loss, want time.Duration
		back             bool
	}{
		"fast":     {5 * time.Second, time.Minute, 5 * time.Second, true},
		"loss":     {0, 30 * time.Second, 30 * time.Second, false},
		"for ever": {7 * time.Second, -1, 7 * time.Second, true},
		"late":     {time.Minute, 9 * time.Second, 9 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				s, n := r.connect(func(cfg *Config) { cfg.FastIOFail, cfg.ControllerLoss = c.fast, c.loss })
				defer r.close(s)
				r.links[0].cut()
				r.links[1].cut()
				synctest.Wait()
				at := time.Now()
				time.Sleep(time.Second)
				_, err := n.ReadAt(t.Context(), make([]byte, 8192), 0)
				if took := time.Since(at); took != c.want {
					t.Errorf("after %v", took)
				}
				var no *NoPathError
				if !errors.As(err, &no) || !errors.Is(err, ErrNoPath) || !errors.Is(err, nvme.StatusHostPathError) || no.For != c.want {
					t.Errorf("error %v", err)
				}
				if text := err.Error(); !strings.Contains(text, "tcp://127.0.0.1:4420 is ") || !strings.Contains(text, "connection refused") {
					t.Errorf("it says %q", text)
				}
				at = time.Now()
				if _, err := n.ReadAt(t.Context(), make([]byte, 8192), 0); !errors.Is(err, ErrNoPath) || time.Since(at) != 0 {
					t.Errorf("a later one: %v after %v", err, time.Since(at))
				}
				if _, err := s.Namespace(t.Context(), 1); !errors.As(err, &no) || time.Since(at) != 0 {
					t.Errorf("the namespace is opened: %v after %v", err, time.Since(at))
				}
				if !c.back {
					return
				}
				r.links[1].restore(r.tgt)
				time.Sleep(10 * time.Second)
				mustWrite(t, n, 7, 0)
			})
		})
	}
}

// TestFailsAtOnce: with the shortest FastIOFail, requests fail as soon as no path is live: those that wait because the
// only live path is inaccessible, when it is lost, and later ones. While a path is live they wait, so that a change of
// ANA states fails none.
func TestFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, n := r.connect(func(c *Config) { c.FastIOFail = time.Nanosecond })
		defer r.close(s)
		set := func(a nvme.ANAState) {
			t.Helper()
			if err := r.tgt.SetANAState(1, 1, a); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		ended := make(chan error, 1)
		read := func() {
			_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
			ended <- err
		}
		for _, cut := range []bool{false, true} {
			set(nvme.ANAInaccessible)
			go read()
			time.Sleep(8 * time.Second)
			if s.Waiting() != 1 {
				t.Fatalf("%d requests wait for an inaccessible path", s.Waiting())
			}
			if !cut {
				set(nvme.ANAOptimized)
				if err := <-ended; err != nil {
					t.Errorf("a change of states failed it: %v", err)
				}
				continue
			}
			at := time.Now()
			r.links[0].cut()
			if err := <-ended; !errors.Is(err, ErrNoPath) || time.Since(at) > time.Microsecond {
				t.Errorf("%v after %v", err, time.Since(at))
			}
		}
		at := time.Now()
		go read()
		if err := <-ended; !errors.Is(err, ErrNoPath) || time.Since(at) > time.Microsecond {
			t.Errorf("a later one took %v", time.Since(at))
		}
		if state(s, 0) != Reconnecting {
			t.Errorf("the path is %v", state(s, 0))
		}
		r.links[0].restore(r.tgt)
		time.Sleep(10 * time.Second)
		go read()
		time.Sleep(time.Second)
		if s.Waiting() != 1 {
			t.Error("it is live again, but requests don't wait for it to be accessible")
		}
		set(nvme.ANAOptimized)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestGivenUpAtOnce: with the shortest ControllerLoss a path has a first attempt, however long it takes, and isn't
// tried again when it is lost, as with Linux's ctrl_loss_tmo=0.
func TestGivenUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.links[0].answerAdmin = func(*nvme.Command, *nvme.Completion) { time.Sleep(time.Millisecond) }
		s, n := r.connect(func(c *Config) { c.ControllerLoss = time.Nanosecond })
		defer r.close(s)
		mustWrite(t, n, 1, 0)
		for i := range 2 {
			if state(s, i) != Live {
				t.Fatalf("path %d is %v: %v", i, state(s, i), s.Paths()[i].Err)
			}
			before := r.links[i].tries()
			at := time.Now()
			r.links[i].cut()
			time.Sleep(time.Minute)
			p := s.Paths()[i]
			if p.State != GivenUp || p.Since.Sub(at) > time.Microsecond || r.links[i].tries() != before {
				t.Errorf("path %d is %v after %v and %d attempts", i, p.State, p.Since.Sub(at), r.links[i].tries()-before)
			}
			if i == 0 {
				mustRead(t, n, 1, 0)
			}
		}
		if _, err := n.ReadAt(t.Context(), make([]byte, 4096), 0); !errors.Is(err, ErrNoPath) || !errors.Is(s.Err(), ErrGivenUp) {
			t.Errorf("%v; %v", err, s.Err())
		}
	})
}

// TestFinal: a refusal of the host ends the attempts to connect; a refusal that may come from a controller that
// ended in the meantime doesn't.
func TestFinal(t *testing.T) {
	said := func(qid uint16, st nvme.Status) error {
		return &host.ConnectError{Stage: "Connect", QID: qid, Err: &nvme.StatusError{Status: st}}
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"not allowed":                 {said(0, nvme.StatusConnectInvalidHost|nvme.StatusDNR), true},
		"busy":                        {said(0, nvme.StatusConnectBusy), false},
		"no such controller any more": {said(1, nvme.StatusConnectInvalidParameter|nvme.StatusDNR), false},
		"ended before Identify":       {said(0, nvme.StatusCommandSequence|nvme.StatusDNR), false},
		"refused":                     {syscall.ECONNREFUSED, false},
		"wrong secret":                {&host.ConnectError{QID: 1, Err: host.ErrAuthentication}, true},
		"TLS demanded":                {&host.ConnectError{Err: host.ErrSecureChannel}, true},
		"no controller for this host": {&host.ConnectError{Err: host.ErrController}, true},
		"nothing to connect by":       {&host.ConnectError{Err: host.ErrConfig}, true},
	} {
		if got := final(c.err); got != c.want {
			t.Errorf("%s: final %v", name, got)
		}
	}
}
