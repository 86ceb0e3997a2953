package multipath

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestJoinANA: a path that connects takes the ANA states that it finds, without a notice of a change.
func TestJoinANA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		set := func(a nvme.ANAState) {
			t.Helper()
			if err := r.tgt.SetANAState(1, 1, a); err != nil {
				t.Fatal(err)
			}
		}
		set(nvme.ANAInaccessible)
		s, n := r.connect()
		defer r.close(s)
		if a := s.Paths()[0].Access[0].State; a != nvme.ANAInaccessible {
			t.Errorf("opened as %v", a)
		}
		r.links[0].cut()
		set(nvme.ANANonOptimized)
		r.links[0].restore(r.tgt)
		time.Sleep(time.Second)
		if a := s.Paths()[0].Access[0].State; a != nvme.ANANonOptimized {
			t.Errorf("connected again as %v", a)
		}
		for range 10 {
			mustRead(t, n, 0, 0)
		}
		if begun := s.Paths()[0].Counters.Begun.Load(); begun != 0 {
			t.Errorf("%d requests took the path that is not optimized", begun)
		}
	})
}

// TestANAUnreadable: a controller that no longer reports its ANA states is reconnected.
func TestANAUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, n := r.connect()
		defer r.close(s)
		c := s.Controllers()[0]
		r.links[0].set(func(l *link) {
			l.answerAdmin = func(c *nvme.Command, cqe *nvme.Completion) {
				if c.Opcode() == nvme.OpGetLogPage {
					cqe.SetStatus(nvme.StatusInternalError)
				}
			}
		})
		if err := r.tgt.SetANAState(1, 1, nvme.ANANonOptimized); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st := s.Paths()[0]; st.State != Reconnecting || !errors.Is(st.Err, nvme.StatusInternalError) || st.Counters.Losses.Load() != 1 {
			t.Errorf("%+v", st)
		}
		if !errors.Is(c.Err(), host.ErrClosed) {
			t.Errorf("its controller: %v", c.Err())
		}
		r.links[0].set(func(l *link) { l.answerAdmin = nil })
		mustRead(t, n, 0, 0)
	})
}

// TestJoinCut: losing a controller while its namespaces are looked for counts as another failed attempt.
func TestJoinCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, n := r.connect()
		defer r.close(s)
		l := r.links[0]
		cuts := 0
		l.set(func(l *link) {
			l.answerAdmin = func(c *nvme.Command, _ *nvme.Completion) {
				if c.Opcode() == nvme.OpIdentify && c.NSID() == 1 && cuts < 3 {
					cuts++
					l.cut()
					l.restore(r.tgt)
				}
			}
		})
		l.cut()
		l.restore(r.tgt)
		mustRead(t, n, 0, 0)
		if c := s.Paths()[0].Counters; cuts != 3 || c.Failures.Load() != 3 || c.Connects.Load() != 2 {
			t.Errorf("%d cuts, %d failures, %d connects", cuts, c.Failures.Load(), c.Connects.Load())
		}
	})
}

// muteWhenCut is a path whose controller doesn't answer while the link is cut.
type muteWhenCut struct{ *link }

func (m muteWhenCut) Dial(ctx context.Context, a host.QueueAttr) (host.TransportQueue, error) {
	q, err := m.link.Dial(ctx, a)
	if err != nil {
		return mute(m).Dial(ctx, a)
	}
	return q, nil
}

// TestLossOfMute: an attempt to reconnect lasts no longer than the controller loss time. The first attempt to connect
// has its own time, as in Linux.
func TestLossOfMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.links[1].restore(nil)
		cfg := r.config()
		for i := range cfg.Paths {
			cfg.Paths[i].Transport, cfg.Paths[i].ConnectTimeout = muteWhenCut{r.links[i]}, 8*time.Second
		}
		cfg.ControllerLoss = 5 * time.Second
		at := time.Now()
		s, err := Connect(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close(s)
		givenUp := func(i int, want time.Duration) {
			t.Helper()
			synctest.Wait() // Connect returns when the attempt is over, just before the path is given up
			if p := s.Paths()[i]; p.State != GivenUp || p.Since.Sub(at) != want || !errors.Is(p.Err, ErrGivenUp) {
				t.Errorf("%v after %v, want %v: %v", p.State, p.Since.Sub(at), want, p.Err)
			}
		}
		givenUp(1, 8*time.Second)
		at = time.Now()
		r.links[0].cut()
		<-s.Done()
		givenUp(0, cfg.ControllerLoss)
	})
}

// TestNamespaceNotice: a path follows a namespace that disappears, comes back and changes its ANA group by the
// controller's notices, without reconnecting.
func TestNamespaceNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		var told []PathStatus
		s, n := r.connect(func(c *Config) { c.Changed = func(p PathStatus) { told = append(told, p) } })
		defer r.close(s)
		sub := r.tgt.Subsystem(testNQN)
		was := n.Identity.NGUID
		if err := sub.RemoveNamespace(1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if a := s.Paths()[0].Access[0]; !errors.Is(a.Err, nvme.StatusInvalidNamespace) {
			t.Errorf("gone: %+v", a)
		}
		if _, err := n.ReadAt(t.Context(), make([]byte, 4096), 0); !errors.Is(err, ErrNoPath) {
			t.Errorf("gone: %v", err)
		}
		told = nil
		r.addNamespace(target.NamespaceConfig{NSID: 1, ANAGroup: 2, UUID: n.Descriptors.UUID, NGUID: was})
		synctest.Wait()
		mustRead(t, n, 0, 0)
		if len(told) == 0 || told[len(told)-1].Access[0].Err != nil {
			t.Errorf("told: %+v", told)
		}
		if err := r.tgt.SetANAState(1, 2, nvme.ANANonOptimized); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if a := s.Paths()[0].Access[0]; a.State != nvme.ANANonOptimized {
			t.Errorf("in another group: %+v", a)
		}
		if c := s.Paths()[0].Counters.Connects.Load(); c != 1 {
			t.Errorf("%d connects", c)
		}
	})
}

// TestAddPathAgain: adding a live path again doesn't affect it; a path that was given up is tried anew; a closed
// subsystem takes none.
func TestAddPathAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, _ := r.connect(func(c *Config) { c.ControllerLoss = 5 * time.Second })
		again := r.config().Paths[1]
		dials := r.links[1].tries()
		if err := s.AddPath(again); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := r.links[1].tries(); n != dials || len(s.Paths()) != 2 {
			t.Errorf("%d dials more, %d paths", n-dials, len(s.Paths()))
		}
		r.links[1].cut()
		time.Sleep(10 * time.Second)
		if state(s, 1) != GivenUp {
			t.Fatalf("it is %v", state(s, 1))
		}
		r.links[1].restore(r.tgt)
		if err := s.AddPath(again); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(s.Paths()) != 2 || state(s, 1) != Live {
			t.Errorf("tried anew: %+v", s.Paths())
		}
		r.close(s)
		if err := s.AddPath(again); !errors.Is(err, host.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// newSecret returns a secret for a test.
func (r *rig) newSecret() *dhchap.Secret {
	secret, err := dhchap.Generate(0, 32)
	if err != nil {
		r.t.Fatal(err)
	}
	return secret
}

// demand has the target demand that the host authenticates itself as a says.
func (r *rig) demand(a *host.Authentication) {
	hosts := map[string]target.HostSecrets{hostNQN: {Host: a.Secret, Controller: a.ControllerSecret}}
	if err := r.tgt.SetAuthentication(&target.Authentication{Hosts: hosts, DHGroups: []nvme.DHGroup{nvme.DHNull}}); err != nil {
		r.t.Error(err)
	}
}

// TestNewSecrets: a path that exists connects again with the secrets that it was added with last, as its controller does
// since it was given them.
func TestNewSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		cfg := r.config().Paths[0]
		change := func() {
			cfg.Authentication = &host.Authentication{Secret: r.newSecret()}
			r.demand(cfg.Authentication)
		}
		change()
		s, n := r.connect(func(c *Config) { c.Paths[0] = cfg })
		defer r.close(s)
		change()
		if err := errors.Join(s.AddPath(cfg), s.Controllers()[0].Authenticate(t.Context(), cfg.Authentication)); err != nil {
			t.Fatal(err)
		}
		r.links[0].cut()
		r.links[0].restore(r.tgt)
		time.Sleep(time.Second)
		if p := s.Paths()[0]; p.State != Live || p.Counters.Connects.Load() != 2 || p.Counters.Failures.Load() != 0 {
			t.Errorf("%+v", p)
		}
		mustRead(t, n, 0, 0)
	})
}

// TestNewSecretsMeanwhile: a path that is given other secrets while it connects tries them, although the former ones are
// wrong by then; it is given up if these are wrong, too.
func TestNewSecretsMeanwhile(t *testing.T) {
	for _, right := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 1)
			former := host.Authentication{Secret: r.newSecret(), ControllerSecret: r.newSecret()}
			other, wrong := former, former
			other.ControllerSecret, wrong.ControllerSecret = r.newSecret(), r.newSecret()
			r.demand(&former)
			cfg := r.config().Paths[0]
			cfg.Authentication = &former
			s, n := r.connect(func(c *Config) { c.Paths[0] = cfg })
			defer r.close(s)
			r.links[0].cut()
			synctest.Wait()
			during := sync.OnceFunc(func() { // the admin queue is connected by then, and the I/O queue isn't
				cfg.Authentication = &other
				r.demand(&other)
				if !right {
					r.demand(&wrong)
				}
				if err := s.AddPath(cfg); err != nil {
					t.Error(err)
				}
			})
			r.links[0].set(func(l *link) { l.answerAdmin = func(*nvme.Command, *nvme.Completion) { during() } })
			r.links[0].restore(r.tgt)
			time.Sleep(time.Second)
			want, failures := Live, uint64(1)
			if !right {
				want, failures = GivenUp, 2
			}
			if p := s.Paths()[0]; p.State != want || p.Counters.Failures.Load() != failures {
				t.Errorf("the path is %v after %d failures, want %v after %d: %v", p.State, p.Counters.Failures.Load(), want, failures, p.Err)
			}
			if right {
				mustRead(t, n, 0, 0)
			}
		})
	}
}

// TestStopWaitingEndsDelays: StopWaiting ends requests that wait for the delay that a controller asked for, which
// may be hours, and those that would have to later; they end with the answer that they got.
func TestStopWaitingEndsDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, n := r.connect()
		defer r.close(s)
		s.Controllers()[0].Identify().CRDT1 = 0xffff // 109 minutes
		r.links[0].set(func(l *link) {
			l.answer = func(_ *nvme.Command, cqe *nvme.Completion) { cqe.SetStatus(nvme.StatusCommandInterrupted | 1<<11) }
		})
		ended := make(chan error, 1)
		flush := func() { ended <- n.Flush(t.Context()) }
		at := time.Now()
		go flush()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatal("it doesn't wait:", err)
		default:
		}
		s.StopWaiting()
		first := <-ended
		flush()
		if second := <-ended; !errors.Is(first, nvme.StatusCommandInterrupted) || !errors.Is(second, nvme.StatusCommandInterrupted) || time.Since(at) > 0 {
			t.Errorf("%v, then %v, after %v", first, second, time.Since(at))
		}
	})
}

// TestDelayedWithoutHope: a request that waits for a long delay ends as soon as no path can take it any more, because
// another namespace is in the place of its own, or because every path was given up.
func TestDelayedWithoutHope(t *testing.T) {
	for name, change := range map[string]func(*rig, *Subsystem){
		"replaced": func(r *rig, s *Subsystem) {
			r.replace([16]byte{1}, volumeSize)
			if _, err := s.Namespace(r.t.Context(), 1); err != nil {
				r.t.Error(err)
			}
		},
		"given up": func(r *rig, s *Subsystem) {
			r.links[0].cut()
			<-s.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				s, n := r.connect(func(c *Config) { c.ControllerLoss = time.Nanosecond })
				defer r.close(s)
				s.Controllers()[0].Identify().CRDT1 = 0xffff // 109 minutes
				r.links[0].set(func(l *link) {
					l.answer = func(_ *nvme.Command, cqe *nvme.Completion) { cqe.SetStatus(nvme.StatusCommandInterrupted | 1<<11) }
				})
				at := time.Now()
				ended := make(chan error, 1)
				go func() { ended <- n.Flush(t.Context()) }()
				synctest.Wait()
				change(r, s)
				if err := <-ended; !errors.Is(err, ErrNoPath) || time.Since(at) > time.Second {
					t.Errorf("%v after %v", err, time.Since(at))
				}
			})
		})
	}
}

// TestStopWaitingStopsTimer: when StopWaiting has ended those that waited, no timer is left that keeps a closed subsystem
// in memory.
func TestStopWaitingStopsTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, n := r.connect()
		defer r.close(s)
		r.links[0].cut()
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- n.Flush(t.Context()) }()
		synctest.Wait()
		timer := n.timer
		s.StopWaiting()
		if err := <-ended; !errors.Is(err, ErrNoPath) {
			t.Error(err)
		}
		if timer.Stop() {
			t.Error("its timer still ran")
		}
	})
}

// TestStopWaitingLasts: StopWaiting also applies to later requests.
func TestStopWaitingLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, n := r.connect(func(c *Config) { c.ControllerLoss = -1 })
		defer r.close(s)
		s.StopWaiting()
		mustRead(t, n, 0, 0)
		r.links[0].cut()
		synctest.Wait()
		at := time.Now()
		if _, err := n.ReadAt(t.Context(), make([]byte, 4096), 0); !errors.Is(err, ErrNoPath) || time.Since(at) != 0 {
			t.Errorf("%v after %v", err, time.Since(at))
		}
	})
}

// TestLeastTransfer: the size of one command on a namespace is that of the path with the smallest transfers, so
// that every path can take it.
func TestLeastTransfer(t *testing.T) {
	for least := range 2 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2)
			r.links[least].most = 64 << 10
			s, n := r.connect()
			defer r.close(s)
			if got := n.MaxTransfer(); got != 64<<10 {
				t.Errorf("a command moves %d bytes", got)
			}
			for _, p := range s.Paths() {
				if p.Access[0].Err != nil {
					t.Errorf("%s: %v", p.Name(), p.Access[0].Err)
				}
			}
		})
	}
}

// TestLanes: each user has a queue of its own on each path, as long as there are enough; synchronous calls use the
// queues in turn.
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect() // two queues each
		defer r.close(s)
		submitted := func() (all [2]uint64) {
			for _, c := range s.Controllers() {
				for i, q := range c.Queues() {
					all[i] += q.Counters().Submitted.Load()
				}
			}
			return all
		}
		for lane, want := range [][2]uint64{{10, 0}, {0, 10}, {10, 0}} {
			before := submitted()
			for range 10 {
				ended := make(chan error, 1)
				q := &host.Request{Done: func(r *host.Request) { ended <- r.Check() }}
				q.Cmd.SetFlush(1)
				n.Lane(lane).SubmitOne(q)
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
			}
			after := submitted()
			if got := [2]uint64{after[0] - before[0], after[1] - before[1]}; got != want {
				t.Errorf("lane %d: %v by each queue, want %v", lane, got, want)
			}
		}
		before := submitted()
		for range 12 {
			mustRead(t, n, 0, 0)
		}
		after := submitted()
		if a, b := after[0]-before[0], after[1]-before[1]; a != 6 || b != 6 {
			t.Errorf("calls: %d and %d by each queue", a, b)
		}
	})
}

// TestChanged: each change of a path's state is reported once, with the state at that time.
func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		var told []State
		s, _ := r.connect(func(c *Config) {
			c.ControllerLoss = 5 * time.Second
			c.Changed = func(p PathStatus) { told = append(told, p.State) }
		})
		defer r.close(s)
		at := time.Now()
		r.links[0].cut()
		time.Sleep(time.Second)
		if since := s.Paths()[0].Since; !since.Equal(at) {
			t.Errorf("lost since %v, at %v", since, at)
		}
		r.links[0].restore(r.tgt)
		time.Sleep(time.Second)
		r.links[0].cut()
		<-s.Done()
		synctest.Wait()
		if want := []State{Live, Reconnecting, Live, Reconnecting, GivenUp}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
