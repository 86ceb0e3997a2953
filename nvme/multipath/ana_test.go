package multipath

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestANA: the path is chosen by the states of the paths in the ANA log.
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
		for range 50 { // flips faster than anyone can follow
			for port := range uint16(2) {
				set(port+1, nvme.ANAInaccessible)
				time.Sleep(3 * time.Millisecond)
				set(port+1, nvme.ANAOptimized)
			}
		}
		l.end(t)
	})
}

// tellANA makes the controllers of a link return the ANA log that log makes, in place of the target's.
func tellANA(l *link, log func() nvme.ANALog) {
	l.set(func(l *link) {
		l.alter = func(c *nvme.Command, data []byte) {
			if c.Opcode() == nvme.OpGetLogPage && c.LID() == nvme.LogANA {
				p := log()
				clear(data[copy(data, p.AppendTo(nil)):])
			}
		}
	})
}

// TestANAGroupChanged: a namespace that moves to another ANA group is followed there. The only sign of it is a
// notice that the ANA log changed (NVMe base 2.1, Identify Namespace, ANAGRPID), which lists the NSIDs of each
// group.
func TestANAGroupChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		var group atomic.Uint32 // of the namespace
		group.Store(1)
		tellANA(r.links[0], func() nvme.ANALog {
			p := nvme.ANALog{ChangeCount: 1, Groups: []nvme.ANAGroup{{ID: 1, State: nvme.ANAOptimized}, {ID: 2, State: nvme.ANAInaccessible}}}
			p.Groups[group.Load()-1].NSIDs = nvme.NSIDList{1}
			return p
		})
		s, n := r.connect()
		defer r.close(s)
		for i, want := range []nvme.ANAState{nvme.ANAOptimized, nvme.ANAInaccessible, nvme.ANAOptimized} {
			group.Store(uint32(1 + i%2))
			for _, a := range []nvme.ANAState{nvme.ANANonOptimized, nvme.ANAOptimized} { // the change causes the notice
				if err := r.tgt.SetANAState(1, 1, a); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if got := s.Paths()[0].Access[0].State; got != want {
				t.Errorf("in group %d: %v, want %v", 1+i%2, got, want)
			}
			before := s.Paths()[0].Counters.Begun.Load()
			for range 4 {
				mustRead(t, n, 0, 0)
			}
			if used := s.Paths()[0].Counters.Begun.Load() != before; used != (want == nvme.ANAOptimized) {
				t.Errorf("in group %d, which is %v: it is used: %v", 1+i%2, want, used)
			}
		}
	})
}

// TestANAGroupChangedMeanwhile: a namespace that moves to another ANA group while it is being opened, after its
// controller has said in which it is, is followed there, though the notice of that has come before.
func TestANAGroupChangedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		var group atomic.Uint32 // of the namespace
		group.Store(1)
		tellANA(r.links[0], func() nvme.ANALog {
			p := nvme.ANALog{ChangeCount: 1, Groups: []nvme.ANAGroup{{ID: 1, State: nvme.ANAInaccessible}, {ID: 2, State: nvme.ANAOptimized}}}
			p.Groups[group.Load()-1].NSIDs = nvme.NSIDList{1}
			return p
		})
		s, err := Connect(t.Context(), r.config())
		if err != nil {
			t.Fatal(err)
		}
		defer r.close(s)
		found, err := s.Controllers()[0].Namespace(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		group.Store(2)
		if err := r.tgt.SetANAState(1, 1, nvme.ANANonOptimized); err != nil { // causes the notice
			t.Fatal(err)
		}
		synctest.Wait()
		s.mu.Lock()
		s.enter([]*host.Namespace{found}, found)
		synctest.Wait()
		if got := s.Paths()[0].Access[0].State; got != nvme.ANAOptimized {
			t.Errorf("it is taken to be in a group that is %v", got)
		}
	})
}

// TestANATooLong: a controller whose ANA log is longer than one command transfers, and can't be read in pieces (LPA
// bit 2), is used as one without ANA, as in Linux, which logs that once per connection; its statuses are still
// obeyed. Nothing is logged for a controller without ANA.
func TestANATooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		l := r.links[0]
		identifyAs := func(c *nvme.Command, data []byte, change func(*nvme.IdentifyController)) {
			var p nvme.IdentifyController
			if c.Opcode() == nvme.OpIdentify && c.CNS() == nvme.CNSController && p.Parse(data) == nil {
				change(&p)
				copy(data, p.AppendTo(nil))
			}
		}
		r.links[1].set(func(l *link) {
			l.alter = func(c *nvme.Command, data []byte) {
				identifyAs(c, data, func(p *nvme.IdentifyController) { p.CMIC &^= nvme.CMICANA })
			}
		})
		reads := 0
		l.set(func(l *link) {
			l.alter = func(c *nvme.Command, data []byte) {
				identifyAs(c, data, func(p *nvme.IdentifyController) {
					p.LPA &^= nvme.LPAExtendedData
					p.MDTS = 1 // 8 KiB
				})
				if c.Opcode() == nvme.OpGetLogPage && c.LID() == nvme.LogANA {
					reads++
					p := nvme.ANALog{Groups: []nvme.ANAGroup{{ID: 1, State: nvme.ANAInaccessible}}}
					for id := range uint32(4000) {
						p.Groups[0].NSIDs = append(p.Groups[0].NSIDs, id+1)
					}
					copy(data, p.AppendTo(nil))
				}
			}
		})
		var logged bytes.Buffer
		s, n := r.connect(func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
		defer r.close(s)
		if got := s.Paths()[0].Access[0].State; got != nvme.ANAOptimized {
			t.Errorf("state %v", got)
		}
		l.set(func(l *link) {
			l.answer = func(_ *nvme.Command, cqe *nvme.Completion) { cqe.SetStatus(nvme.StatusANAInaccessible) }
		})
		for range 20 {
			mustRead(t, n, 0, 0)
			time.Sleep(2 * anaGap)
		}
		text := logged.String()
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "ANA states not known") ||
			!strings.Contains(text, "remote="+l.addr.String()) {
			t.Errorf("it says %q", text)
		}
		if reads != 1 {
			t.Errorf("its log was read %d times", reads)
		}
	})
}

// TestANATold: the owner is told when a namespace's state changes, and not when reading the log, because of a
// status that contradicts it, shows the same state.
func TestANATold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		var told []nvme.ANAState // of the first path, whose goroutine makes the call
		s, n := r.connect(func(c *Config) {
			c.Changed = func(p PathStatus) {
				if p.Remote == r.links[0].addr && len(p.Access) > 0 {
					told = append(told, p.Access[0].State)
				}
			}
		})
		defer r.close(s)
		want := []nvme.ANAState{nvme.ANANonOptimized, nvme.ANAInaccessible, nvme.ANAOptimized}
		for _, a := range want {
			if err := r.tgt.SetANAState(1, 1, a); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		r.links[0].set(func(l *link) {
			l.answer = func(_ *nvme.Command, cqe *nvme.Completion) { cqe.SetStatus(nvme.StatusANAInaccessible) }
		})
		for range 4 {
			mustRead(t, n, 0, 0)
			time.Sleep(2 * anaGap)
		}
		synctest.Wait()
		if !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// TestANALost: if every path has lost the namespace for good, requests fail at once; if it is only inaccessible
// they wait. The paths are live, so FastIOFail doesn't limit that, as in Linux.
func TestANALost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect(func(c *Config) { c.FastIOFail, c.ControllerLoss = 3*time.Second, 20*time.Second })
		defer r.close(s)
		for _, c := range []struct {
			state nvme.ANAState
			want  time.Duration
		}{{nvme.ANAInaccessible, 20 * time.Second}, {nvme.ANAPersistentLoss, 0}} {
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

// TestANAContradiction: if every command ends with an ANA status although the log keeps saying that the namespace
// can be used, a request is given up when it has been refused for as long as it would wait for a live path. Another
// path, even a worse one, takes it at once.
func TestANAContradiction(t *testing.T) {
	refuse := func(l *link) {
		l.answer = func(_ *nvme.Command, cqe *nvme.Completion) { cqe.SetStatus(nvme.StatusANATransition) }
	}
	for name, c := range map[string]struct{ fast, loss, want time.Duration }{
		"loss":                   {0, 12 * time.Second, 12 * time.Second},
		"live paths don't count": {5 * time.Second, time.Minute, time.Minute},
		"at once":                {time.Nanosecond, time.Nanosecond, defaultTransition},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				s, n := r.connect(func(cfg *Config) { cfg.FastIOFail, cfg.ControllerLoss = c.fast, c.loss })
				defer r.close(s)
				for _, l := range r.links {
					l.set(refuse)
				}
				for range 2 { // earlier refusals don't count
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
				time.Sleep(2 * anaGap) // the doubt about the path is over
				at := time.Now()
				mustRead(t, n, 0, 0)
				if took := time.Since(at); took != 0 {
					t.Errorf("the other path took it after %v", took)
				}
			})
		})
	}
}

// TestANAContradictionStopped: StopWaiting also ends the wait for refusals to end.
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
		time.Sleep(time.Minute) // nothing limits the wait
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

// TestANATT: a controller whose group stays in the change state is reconnected after ANATT, 10 s.
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

// TestANATTPatience: however soon lost paths are given up, requests wait for as long as a change of ANA states takes by
// ANATT: only then are all paths down (NVMe base 2.2, section 8.1.2.6).
func TestANATTPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		const offANATT = 342
		r.links[0].alter = func(c *nvme.Command, data []byte) {
			if c.Opcode() == nvme.OpIdentify && c.CNS() == nvme.CNSController {
				data[offANATT] = 30
			}
		}
		s, n := r.connect(func(c *Config) { c.ControllerLoss = time.Second })
		defer r.close(s)
		for _, in := range []time.Duration{30*time.Second - time.Nanosecond, 30 * time.Second} {
			if err := r.tgt.SetANAState(1, 1, nvme.ANAInaccessible); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			ended := make(chan error, 1)
			go func() {
				_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
				ended <- err
			}()
			time.Sleep(in)
			synctest.Wait()
			if err := r.tgt.SetANAState(1, 1, nvme.ANAOptimized); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; (err == nil) != (in < 30*time.Second) || err != nil && !errors.Is(err, ErrNoPath) {
				t.Errorf("after %v: %v", in, err)
			}
		}
	})
}

// TestANATTEach: groups that change one after the other, each in time, don't end the controller even though one is
// always changing; a group that doesn't end its change does.
func TestANATTEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		for id := uint16(2); id <= 3; id++ {
			r.addNamespace(target.NamespaceConfig{ANAGroup: uint32(id)})
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
		for i := range uint32(6) { // groups 2 and 3 in turn
			time.Sleep(5 * time.Second)
			set(2+(i+1)%2, nvme.ANAChange)
			time.Sleep(time.Second)
			set(2+i%2, nvme.ANAOptimized)
		}
		synctest.Wait()
		if c := s.Paths()[0].Counters; c.Losses.Load() != 0 {
			t.Error("given up, though each change was in time")
		}
		time.Sleep(9 * time.Second) // the last began a second ago, and the end of another doesn't extend its time
		synctest.Wait()
		if c := s.Paths()[0].Counters; c.Losses.Load() != 1 {
			t.Error("not given up")
		}
	})
}
