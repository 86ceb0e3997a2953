package multipath

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// state is that of path i.
func state(s *Subsystem, i int) State { return s.Paths()[i].State }

func mustWrite(t *testing.T, n *Namespace, b byte, off int64) {
	t.Helper()
	if _, err := n.WriteAt(t.Context(), bytes.Repeat([]byte{b}, 8192), off); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func mustRead(t *testing.T, n *Namespace, want byte, off int64) {
	t.Helper()
	p := make([]byte, 8192)
	if _, err := n.ReadAt(t.Context(), p, off); err != nil {
		t.Fatalf("read: %v", err)
	}
	if !bytes.Equal(p, bytes.Repeat([]byte{want}, len(p))) {
		t.Fatalf("read %#x at %d, want %#x", p[0], off, want)
	}
}

// TestRoundRobin: both paths take the same share.
func TestRoundRobin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		defer r.close(s)
		for i := range 20 {
			mustWrite(t, n, byte(i), 0)
			mustRead(t, n, byte(i), 0)
		}
		for _, p := range s.Paths() {
			if got := p.Counters.Ended.Load(); got != 20 || p.State != Live || p.Access[0].State != nvme.ANAOptimized {
				t.Errorf("%s: %d requests, %+v", p.Name(), got, p)
			}
		}
	})
}

// TestQueueDepth: a path whose requests don't end gets no more of them than the others' number
// says.
func TestQueueDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect(func(c *Config) { c.Policy = QueueDepth })
		defer r.close(s)
		r.links[0].set(func(l *link) { l.hold = func(*nvme.Command) bool { return true } })
		held := &host.Request{Data: make([]byte, n.BlockSize()), Done: func(*host.Request) {}}
		held.Cmd.SetIO(nvme.OpRead, n.ID, 0, 1, 0)
		for s.Paths()[0].UnderWay == 0 {
			n.Lane(0).SubmitOne(held)
			synctest.Wait()
		}
		for range 20 {
			mustRead(t, n, 0, 0)
		}
		if got := s.Paths()[1].Counters.Ended.Load(); got < 20 {
			t.Errorf("%d requests took the idle path", got)
		}
	})
}

// load keeps requests under way on two lanes until stop, and counts those that fail.
type load struct {
	done   atomic.Int64
	failed atomic.Int64
	first  atomic.Pointer[error]
	stop   atomic.Bool
	left   chan struct{}
}

func startLoad(n *Namespace) *load {
	l := &load{left: make(chan struct{}, 8)}
	for i := range 8 {
		r := &host.Request{Data: make([]byte, n.BlockSize())}
		r.Done = func(r *host.Request) {
			if err := r.Check(); err != nil {
				l.failed.Add(1)
				l.first.CompareAndSwap(nil, &err)
			}
			l.done.Add(1)
			if l.stop.Load() {
				l.left <- struct{}{}
				return
			}
			// Virtual time must pass.
			time.AfterFunc(4*time.Millisecond, func() { l.submit(n, r, i) })
		}
		l.submit(n, r, i)
	}
	return l
}

func (l *load) submit(n *Namespace, r *host.Request, i int) {
	op := nvme.OpRead
	if i%2 == 1 {
		op = nvme.OpWrite
	}
	r.Cmd.SetIO(op, n.ID, uint64(i), 1, 0)
	n.Lane(i % 2).SubmitOne(r)
}

func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop.Store(true)
	for range cap(l.left) {
		<-l.left
	}
	if l.failed.Load() > 0 {
		t.Errorf("%d of %d requests failed: %v", l.failed.Load(), l.done.Load(), *l.first.Load())
	}
}

// TestLoss: the loss of a path under load fails nothing, and it comes back as soon as it can.
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

// TestBackoff: attempts come after pauses that double, to the second.
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

// TestAllLost: requests wait while no path lives, and go on when one comes back.
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

// TestWaitsInVain: after the controller loss time, or fast_io_fail_tmo, requests fail and the
// error says why; those that come later fail at once, and when a path is back they don't.
func TestWaitsInVain(t *testing.T) {
	for name, c := range map[string]struct {
		fast, loss, want time.Duration
		back             bool
	}{
		"fast":     {5 * time.Second, time.Minute, 5 * time.Second, true},
		"loss":     {0, 30 * time.Second, 30 * time.Second, false},
		"for ever": {7 * time.Second, -1, 7 * time.Second, true},
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

// TestANA: the states of the paths decide which is used, as the log tells them.
func TestANA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		defer r.close(s)
		l := startLoad(n)
		share := func(i int) uint64 {
			before := s.Paths()[i].Counters.Begun.Load()
			time.Sleep(100 * time.Millisecond)
			return s.Paths()[i].Counters.Begun.Load() - before
		}
		set := func(port uint16, a nvme.ANAState) {
			if err := r.tgt.SetANAState(port, 1, a); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		for _, a := range []nvme.ANAState{nvme.ANANonOptimized, nvme.ANAInaccessible, nvme.ANAPersistentLoss, nvme.ANAChange} {
			set(1, a)
			if got := s.Paths()[0].Access[0].State; got != a {
				t.Errorf("state %v, want %v", got, a)
			}
			if a, b := share(0), share(1); a != 0 || b == 0 {
				t.Errorf("the shares are %d and %d", a, b)
			}
			if a == nvme.ANANonOptimized { // as good as any when it's the best
				set(2, nvme.ANAInaccessible)
				if a, b := share(0), share(1); a == 0 || b != 0 {
					t.Errorf("the shares are %d and %d", a, b)
				}
				set(2, nvme.ANAOptimized)
			}
			set(1, nvme.ANAOptimized)
			if a, b := share(0), share(1); a == 0 || b == 0 {
				t.Errorf("the shares are %d and %d", a, b)
			}
		}
		for range 50 { // flips faster than anybody follows
			for port := range uint16(2) {
				set(port+1, nvme.ANAInaccessible)
				time.Sleep(3 * time.Millisecond)
				set(port+1, nvme.ANAOptimized)
			}
		}
		l.end(t)
	})
}

// TestANALost: where every path has lost the namespace for good, requests fail at once; where
// it is only inaccessible they wait.
func TestANALost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect(func(c *Config) { c.FastIOFail = 3 * time.Second })
		defer r.close(s)
		for _, c := range []struct {
			state nvme.ANAState
			want  time.Duration
		}{{nvme.ANAInaccessible, 3 * time.Second}, {nvme.ANAPersistentLoss, 0}} {
			at := time.Now()
			for port := range uint16(2) {
				if err := r.tgt.SetANAState(port+1, 1, c.state); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
			if took := time.Since(at); !errors.Is(err, ErrNoPath) || took != c.want {
				t.Errorf("%v: %v after %v", c.state, err, took)
			}
			if !strings.Contains(err.Error(), "is live, but "+c.state.String()) {
				t.Errorf("it says %q", err)
			}
			for port := range uint16(2) {
				if err := r.tgt.SetANAState(port+1, 1, nvme.ANAOptimized); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			mustRead(t, n, 0, 0)
		}
	})
}

// TestANAContradiction: where every command ends with an ANA status although the log keeps saying
// that the namespace can be used, a request is given up when it was refused for as long as it
// would wait for a path. Another path, even a worse one, takes it at once.
func TestANAContradiction(t *testing.T) {
	refuse := func(l *link) {
		l.answer = func(_ *nvme.Command, cqe *nvme.Completion) { cqe.SetStatus(nvme.StatusANATransition) }
	}
	for name, c := range map[string]struct{ fast, loss, want time.Duration }{
		"fast":     {5 * time.Second, time.Minute, 5 * time.Second},
		"loss":     {0, 30 * time.Second, 30 * time.Second},
		"for ever": {7 * time.Second, -1, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				s, n := r.connect(func(cfg *Config) { cfg.FastIOFail, cfg.ControllerLoss = c.fast, c.loss })
				defer r.close(s)
				for _, l := range r.links {
					l.set(refuse)
				}
				for range 2 { // what was refused before counts for nothing
					at := time.Now()
					_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
					if took := time.Since(at); took < c.want || took > c.want+2*anaGap {
						t.Errorf("after %v, want %v", took, c.want)
					}
					var no *NoPathError
					if !errors.As(err, &no) || !errors.Is(err, nvme.StatusHostPathError) || !errors.Is(err, nvme.StatusANATransition) || no.For < c.want {
						t.Errorf("error %v", err)
					}
					if text := err.Error(); !strings.Contains(text, "is live and optimized") || !strings.Contains(text, "the last answer: Read on namespace 1") {
						t.Errorf("it says %q", text)
					}
				}
				if got := s.Counters().Failed.Load(); got != 2 {
					t.Errorf("%d failed", got)
				}
				if err := r.tgt.SetANAState(2, 1, nvme.ANANonOptimized); err != nil {
					t.Fatal(err)
				}
				r.links[1].set(func(l *link) { l.answer = nil })
				time.Sleep(2 * anaGap) // the doubt about it is over
				at := time.Now()
				mustRead(t, n, 0, 0)
				if took := time.Since(at); took != 0 {
					t.Errorf("the other path took it after %v", took)
				}
			})
		})
	}
}

// TestANAContradictionStopped: who doesn't want to wait any longer doesn't wait for refusals to
// end either.
func TestANAContradictionStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, n := r.connect(func(cfg *Config) { cfg.ControllerLoss = -1 })
		defer r.close(s)
		r.links[0].set(func(l *link) {
			l.answer = func(_ *nvme.Command, cqe *nvme.Completion) { cqe.SetStatus(nvme.StatusANAInaccessible) }
		})
		ended := make(chan error, 1)
		go func() {
			_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
			ended <- err
		}()
		time.Sleep(time.Minute) // as long as it is wanted
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
		s.StopWaiting()
		if err := <-ended; !errors.Is(err, ErrNoPath) {
			t.Error(err)
		}
	})
}

// TestANATT: a controller whose group stays in the change state is connected anew after ANATT,
// 10 s.
func TestANATT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		defer r.close(s)
		if err := r.tgt.SetANAState(1, 1, nvme.ANAChange); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(10*time.Second - time.Nanosecond)
		synctest.Wait()
		if c := s.Paths()[0].Counters; c.Losses.Load() != 0 {
			t.Error("given up too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if c := s.Paths()[0].Counters; c.Losses.Load() != 1 {
			t.Error("not given up")
		}
		mustRead(t, n, 0, 0)
	})
}

// TestANATTEach: groups that change one after the other, each in time, end no controller, though
// there is always one that changes; one that doesn't end its change does.
func TestANATTEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		for id := uint16(2); id <= 3; id++ {
			v, err := blockdev.NewMemory(blockdev.Options{Size: volumeSize})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			if _, err := r.tgt.Subsystem(testNQN).AddNamespace(target.NamespaceConfig{Volume: v, ANAGroup: uint32(id)}); err != nil {
				t.Fatal(err)
			}
		}
		s, _ := r.connect()
		defer r.close(s)
		set := func(group uint32, a nvme.ANAState) {
			t.Helper()
			if err := r.tgt.SetANAState(1, group, a); err != nil {
				t.Fatal(err)
			}
		}
		set(2, nvme.ANAChange)
		for i := range uint32(6) { // 2 and 3 in turns
			time.Sleep(5 * time.Second)
			set(2+(i+1)%2, nvme.ANAChange)
			time.Sleep(time.Second)
			set(2+i%2, nvme.ANAOptimized)
		}
		synctest.Wait()
		if c := s.Paths()[0].Counters; c.Losses.Load() != 0 {
			t.Error("given up, though each change was in time")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if c := s.Paths()[0].Counters; c.Losses.Load() != 1 {
			t.Error("not given up")
		}
	})
}

// TestStatuses: what is tried again, how often, when, and what isn't.
func TestStatuses(t *testing.T) {
	for name, c := range map[string]struct {
		status nvme.Status
		times  int // that the first path answers so
		ok     bool
		want   int // answers of the first path
		took   time.Duration
	}{
		"media error":          {nvme.StatusUnrecoveredRead | nvme.StatusDNR, 1, false, 1, 0},
		"transient":            {nvme.StatusTransientTransport, 3, true, 4, 0},
		"too often":            {nvme.StatusTransientTransport, 100, false, 6, 0},
		"path error":           {nvme.StatusInternalPathError, 3, true, 4, 3 * pathPause},
		"path error for good":  {nvme.StatusInternalPathError | nvme.StatusDNR, 1, false, 1, 0},
		"not ready, DNR":       {nvme.StatusCommandSequence | nvme.StatusDNR, 3, true, 4, 3 * pathPause},
		"never ready":          {nvme.StatusCommandSequence | nvme.StatusDNR, 100, false, 6, 5 * pathPause},
		"inaccessible":         {nvme.StatusANAInaccessible, 3, true, 4, 2 * anaGap},
		"persistent loss, DNR": {nvme.StatusANAPersistentLoss | nvme.StatusDNR, 1, false, 1, 0},
		"delay":                {nvme.StatusCommandInterrupted | 2<<11, 1, true, 2, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				s, n := r.connect()
				defer r.close(s)
				s.Controllers()[0].Identify().CRDT2 = 3
				answers := 0
				r.links[0].set(func(l *link) {
					l.answer = func(_ *nvme.Command, cqe *nvme.Completion) {
						if answers++; answers <= c.times {
							cqe.SetStatus(c.status)
						}
					}
				})
				at := time.Now()
				_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
				if took := time.Since(at); took != c.took {
					t.Errorf("after %v, want %v", took, c.took)
				}
				if (err == nil) != c.ok || err != nil && !errors.Is(err, c.status) || answers != c.want {
					t.Errorf("%v after %d answers", err, answers)
				}
			})
		})
	}
}

// TestFinal: what the target says about the host ends the attempts to connect, what it says about a
// controller that may have ended meanwhile doesn't.
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
	} {
		if got := final(c.err); got != c.want {
			t.Errorf("%s: final %v", name, got)
		}
	}
}

// TestNotRepeatable: a command that mustn't be executed twice ends with the error of its path.
func TestNotRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		defer r.close(s)
		for _, l := range r.links {
			l.set(func(l *link) { l.hold = func(*nvme.Command) bool { return true } })
		}
		ended := make(chan error, 1)
		q := &host.Request{Data: make([]byte, 16), Done: func(r *host.Request) { ended <- r.Check() }}
		q.Cmd = nvme.Command{byte(nvme.OpResvRegister)}
		q.Cmd.SetNSID(1)
		n.Lane(0).SubmitOne(q)
		synctest.Wait()
		for _, l := range r.links {
			l.cut()
		}
		if err := <-ended; !errors.Is(err, host.ErrLost) || errors.Is(err, ErrNoPath) {
			t.Error(err)
		}
	})
}

// TestNotRepeatableStatus: one that was answered with an error may have been executed in part, as
// Copy is, or have lost its other half. Only a status that says that it wasn't executed has it
// sent again.
func TestNotRepeatableStatus(t *testing.T) {
	fused := nvme.Command{byte(nvme.OpCompare), 1}
	for name, c := range map[string]struct {
		cmd    nvme.Command
		status nvme.Status
		want   int // answers
	}{
		"copy, aborted":      {nvme.Command{byte(nvme.OpCopy)}, nvme.StatusAbortRequested, 1},
		"copy, inaccessible": {nvme.Command{byte(nvme.OpCopy)}, nvme.StatusANAInaccessible, 2},
		"fused":              {fused, nvme.StatusAbortFailedFused, 1},
		"fused, path":        {fused, nvme.StatusANAInaccessible, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				s, n := r.connect()
				defer r.close(s)
				answers := 0
				r.links[0].set(func(l *link) {
					l.answer = func(_ *nvme.Command, cqe *nvme.Completion) {
						answers++
						cqe.SetStatus(c.status)
						if answers > 1 {
							cqe.SetStatus(nvme.StatusSuccess)
						}
					}
				})
				ended := make(chan error, 1)
				q := &host.Request{Cmd: c.cmd, Done: func(r *host.Request) { ended <- r.Check() }}
				q.Cmd.SetNSID(1)
				n.Lane(0).SubmitOne(q)
				if err := <-ended; (err == nil) != (c.want > 1) || answers != c.want {
					t.Errorf("%v after %d answers, want %d", err, answers, c.want)
				}
			})
		})
	}
}

// TestOtherNamespace: a path that leads to another namespace doesn't join, and says why.
func TestOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		v, err := blockdev.NewMemory(blockdev.Options{Size: volumeSize})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		other := newTarget(t, v, func(c *target.NamespaceConfig) { c.UUID = [16]byte{1} })
		defer other.Close(context.Background())
		s, n := r.connect()
		defer r.close(s)
		r.links[1].cut()
		r.links[1].restore(other)
		time.Sleep(time.Second)
		p := s.Paths()[1]
		if p.State != Live || !errors.Is(p.Access[0].Err, ErrIdentity) || !strings.Contains(p.Access[0].Err.Error(), "UUID 01000000-") {
			t.Errorf("%+v", p)
		}
		for range 10 {
			mustWrite(t, n, 9, 0)
		}
		if b := make([]byte, 4096); func() bool { readVolume(t, v, b); return b[0] == 9 }() {
			t.Error("it was written to")
		}
		r.links[0].cut()
		if _, err := n.ReadAt(t.Context(), make([]byte, 4096), 0); !errors.Is(err, ErrNoPath) && !errors.Is(err, ErrIdentity) {
			t.Errorf("with that path alone: %v", err)
		}
	})
}

func readVolume(t *testing.T, v blockdev.Volume, b []byte) {
	t.Helper()
	done := make(chan error, 1)
	v.Submit(&blockdev.Request{Op: blockdev.OpRead, Length: int64(len(b)), Bufs: [][]byte{b}, Complete: func(r *blockdev.Request) { done <- r.Err }})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestConnect: one live path is enough, the others are tried further; none, or one that is
// refused for good, is an error that names them.
func TestConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.links[0].restore(nil)
		s, n := r.connect()
		mustWrite(t, n, 1, 0)
		if st := s.Paths()[0]; st.State != Connecting || !errors.Is(st.Err, syscall.ECONNREFUSED) {
			t.Errorf("%+v", st)
		}
		r.links[0].restore(r.tgt)
		time.Sleep(time.Second)
		if state(s, 0) != Live || s.Paths()[0].Counters.Losses.Load() != 0 {
			t.Errorf("%+v", s.Paths()[0])
		}
		if len(s.Controllers()) != 2 {
			t.Errorf("%d controllers", len(s.Controllers()))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		r.links[0].restore(nil)
		cfg := r.config()
		for i := range cfg.Paths {
			cfg.Paths[i].SubNQN = "nqn.2024-01.com.example:none"
		}
		_, err := Connect(t.Context(), cfg)
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, nvme.StatusConnectInvalidParameter) {
			t.Errorf("Connect: %v", err)
		}
		cfg.Paths[1].HostNQN = "nqn.2024-01.com.example:other"
		if _, err := Connect(t.Context(), cfg); !errors.Is(err, host.ErrConfig) || !strings.Contains(err.Error(), "Paths[1]") {
			t.Errorf("two hosts: %v", err)
		}
		r.close(s)
	})
}

// TestAddPath: a path can come later, once.
func TestAddPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect(func(c *Config) { c.Paths = c.Paths[:1] })
		defer r.close(s)
		for range 2 {
			if err := s.AddPath(r.config().Paths[1]); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(s.Paths()) != 2 || state(s, 1) != Live {
			t.Errorf("%+v", s.Paths())
		}
		r.links[0].cut()
		mustRead(t, n, 0, 0)
	})
}

// TestAddPathAtOnce: a path that several add at once is there once, and none is added to a
// subsystem that is closed meanwhile.
func TestAddPathAtOnce(t *testing.T) {
	r := newRig(t, 1)
	s, _ := r.connect()
	const paths = 50
	var all sync.WaitGroup
	add := func(i int) error {
		cfg := r.config().Paths[0]
		cfg.Local = netip.AddrFrom4([4]byte{127, 0, 1, byte(i)})
		return s.AddPath(cfg)
	}
	for i := range paths {
		for range 4 {
			all.Go(func() {
				if err := add(i); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if n := len(s.Paths()); n != 1+paths {
		t.Errorf("%d paths, want %d", n, 1+paths)
	}
	for i := range paths {
		all.Go(func() {
			if err := add(paths + i); err != nil && !errors.Is(err, host.ErrClosed) {
				t.Error(err)
			}
		})
	}
	r.close(s)
	all.Wait()
}

// TestCancel: a call whose context ends while it waits for a path ends at once, and so does
// one that waits when the subsystem is closed.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		r.links[0].cut()
		r.links[1].cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		at := time.Now()
		_, err := n.ReadAt(ctx, make([]byte, 1<<20), 0)
		if took := time.Since(at); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
		if err := n.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
			ended <- err
		}()
		synctest.Wait()
		r.close(s)
		if err := <-ended; !errors.Is(err, host.ErrClosed) {
			t.Error(err)
		}
		if _, err := n.ReadAt(t.Context(), make([]byte, 4096), 0); !errors.Is(err, host.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestCancelUnderWay: a command that a controller keeps is aborted, and when that doesn't end
// it the controller is given up, which the other path doesn't notice.
func TestCancelUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		defer r.close(s)
		r.links[0].set(func(l *link) { l.hold = func(*nvme.Command) bool { return true } })
		r.links[1].set(func(l *link) { l.hold = func(*nvme.Command) bool { return true } })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		at := time.Now()
		_, err := n.ReadAt(ctx, make([]byte, 4096), 0)
		if took := time.Since(at); !errors.Is(err, context.DeadlineExceeded) || took != 6*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		if a, b := s.Paths()[0].Counters.Losses.Load(), s.Paths()[1].Counters.Losses.Load(); a+b != 1 {
			t.Errorf("%d and %d losses", a, b)
		}
	})
}

// TestPlainNamespace: what is read through a controller itself has nothing to do with paths, also
// where it uses requests that paths carried before.
func TestPlainNamespace(t *testing.T) {
	r := newRig(t, 1)
	s, n := r.connect()
	plain, err := n.Controller().Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for range 20 {
		mustWrite(t, n, 1, 0)
		if _, err := plain.ReadAt(t.Context(), buf, 0); err != nil {
			t.Fatal(err)
		}
	}
	if p := s.Paths()[0]; p.UnderWay != 0 || p.Counters.Begun.Load() != 20 {
		t.Errorf("%d under way after %d", p.UnderWay, p.Counters.Begun.Load())
	}
	r.close(s)
}

func TestParsePolicy(t *testing.T) {
	for _, p := range []Policy{RoundRobin, QueueDepth} {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	for _, s := range []string{"", "numa", "fastest"} {
		if _, err := ParsePolicy(s); err == nil {
			t.Errorf("%q is a policy", s)
		}
	}
}
