package multipath

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestCloseForgets: Close returns how the controllers that it closes shut down, not how one did that the path gave
// up long before.
func TestCloseForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		memory, err := blockdev.NewMemory(blockdev.Options{Size: volumeSize})
		if err != nil {
			t.Fatal(err)
		}
		slow := wrap.NewFreezer(memory)
		defer slow.Close()
		if _, err := r.tgt.Subsystem(testNQN).AddNamespace(target.NamespaceConfig{Volume: slow, ANAGroup: 2}); err != nil {
			t.Fatal(err)
		}
		s, _ := r.connect()
		n, err := s.Namespace(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		slow.Freeze()
		ended := make(chan error, 1)
		go func() { ended <- n.Flush(t.Context()) }()
		synctest.Wait()
		if err := r.tgt.SetANAState(1, 1, nvme.ANAChange); err != nil { // lasts longer than ANATT
			t.Fatal(err)
		}
		r.links[0].restore(nil) // for later connections
		time.Sleep(20 * time.Second)
		slow.Thaw()
		time.Sleep(time.Second)
		if st := s.Paths()[0]; st.State != Reconnecting {
			t.Fatalf("the path is %v", st.State)
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-ended; err == nil {
			t.Error("a flush ended well that was cut short")
		}
		if err := r.tgt.Close(context.Background()); err != nil {
			t.Error(err)
		}
		r.volume.Close()
	})
}

// TestCloseOfLost: a request whose path is lost when Close has begun ends because of Close.
func TestCloseOfLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		for _, l := range r.links {
			l.set(func(l *link) { l.hold = func(*nvme.Command) bool { return true } })
		}
		q := &host.Request{Done: func(*host.Request) {}}
		q.Cmd.SetFlush(1)
		n.Lane(0).SubmitOne(q)
		synctest.Wait()
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		for _, l := range r.links {
			l.cut()
		}
		synctest.Wait()
		if !errors.Is(q.Err, host.ErrClosed) || q.Status() != nvme.StatusHostAborted {
			t.Errorf("it ended with %v, %v", q.Err, q.Status())
		}
		r.close(s)
	})
}

// TestCloseWaitsForLost: Close returns when the requests of a controller have ended that was lost before: until then the
// transport may use their memory.
func TestCloseWaitsForLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := blockdev.NewMemory(blockdev.Options{Size: volumeSize})
		if err != nil {
			t.Fatal(err)
		}
		slow := wrap.NewFreezer(memory)
		r := newRigOf(t, slow, 1)
		s, n := r.connect()
		slow.Freeze()
		ended := false
		q := &host.Request{Done: func(*host.Request) { ended = true }}
		q.Cmd.SetFlush(1)
		n.Lane(0).SubmitOne(q)
		synctest.Wait()
		r.links[0].cut()
		synctest.Wait()
		if st := s.Paths()[0]; st.State != Reconnecting || ended {
			t.Fatalf("the path is %v, the request ended: %v", st.State, ended)
		}
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		if len(closed) != 0 {
			t.Error("Close returned while the transport has a request")
		}
		slow.Thaw()
		if err := <-closed; err != nil || !ended {
			t.Errorf("Close: %v, the request ended: %v", err, ended)
		}
		r.close(s)
	})
}

// TestCloseWaitsForTimers: Close returns when the requests have ended whose time to wait, or whose delay, was over just
// before it.
func TestCloseWaitsForTimers(t *testing.T) {
	for _, delayed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 1)
			s, n := r.connect(func(c *Config) { c.FastIOFail = pathPause })
			if delayed {
				r.links[0].set(func(l *link) {
					l.answer = func(_ *nvme.Command, cqe *nvme.Completion) { cqe.SetStatus(nvme.StatusInternalPathError) }
				})
			} else {
				r.links[0].cut()
			}
			synctest.Wait()
			ending, leave := false, make(chan struct{})
			q := &host.Request{Done: func(*host.Request) { ending = true; <-leave }}
			q.Cmd.SetFlush(1)
			n.Lane(0).SubmitOne(q)
			synctest.Wait()
			r.links[0].cut()
			time.Sleep(pathPause)
			synctest.Wait()
			if !ending || !errors.Is(q.Err, ErrNoPath) {
				t.Fatalf("delayed %v: it ended: %v, with %v", delayed, ending, q.Err)
			}
			closed := make(chan error, 1)
			go func() { closed <- s.Close() }()
			synctest.Wait()
			if len(closed) != 0 {
				t.Errorf("delayed %v: Close returned while a request ends", delayed)
			}
			close(leave)
			if err := <-closed; err != nil {
				t.Error(err)
			}
			r.close(s)
		})
	}
}

// TestCloseWaitsForStopWaiting: Close returns when the requests have ended that StopWaiting ends.
func TestCloseWaitsForStopWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, n := r.connect()
		s.Controllers()[0].Identify().CRDT1 = 0xffff // 109 minutes
		r.links[0].set(func(l *link) {
			l.answer = func(_ *nvme.Command, cqe *nvme.Completion) { cqe.SetStatus(nvme.StatusCommandInterrupted | 1<<11) }
		})
		ending, leave := false, make(chan struct{})
		q := &host.Request{Done: func(*host.Request) { ending = true; <-leave }}
		q.Cmd.SetFlush(1)
		n.Lane(0).SubmitOne(q)
		synctest.Wait()
		go s.StopWaiting()
		synctest.Wait()
		if !ending || q.Err != nil {
			t.Fatalf("it ended: %v, with %v", ending, q.Err)
		}
		r.links[0].set(func(l *link) { l.answer = nil })
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(closed) != 0 {
			t.Error("Close returned while a request ends")
		}
		close(leave)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		r.close(s)
	})
}

// TestUseAfterClose: whether or not a path was live, a closed subsystem says that it is closed, and shows no path that is
// connected or tried.
func TestUseAfterClose(t *testing.T) {
	for _, live := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2)
			s, n := r.connect()
			if !live {
				for _, l := range r.links {
					l.cut()
				}
				time.Sleep(time.Second)
			}
			r.close(s)
			_, opened := s.Namespace(t.Context(), 1)
			_, listed := s.Namespaces(t.Context())
			_, read := n.ReadAt(t.Context(), make([]byte, n.BlockSize()), 0)
			for _, err := range []error{opened, listed, read, s.AddPath(r.config().Paths[0]), s.Err()} {
				if !errors.Is(err, host.ErrClosed) {
					t.Errorf("live %v: it says %v", live, err)
				}
			}
			for _, p := range s.Paths() {
				if p.State != GivenUp || !errors.Is(p.Err, host.ErrClosed) {
					t.Errorf("live %v: a path is %v: %v", live, p.State, p.Err)
				}
			}
			if cs := s.Controllers(); len(cs) != 0 {
				t.Errorf("live %v: %d controllers are left", live, len(cs))
			}
		})
	}
}

// TestNothingLive: the error for a call that needs a live path names what was asked for and says for how long there
// has been none.
func TestNothingLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, _ := r.connect()
		defer r.close(s)
		r.links[0].cut()
		time.Sleep(1500 * time.Millisecond)
		_, opened := s.Namespace(t.Context(), 7)
		_, listed := s.Namespaces(t.Context())
		for want, err := range map[string]error{
			"nvme: namespace 7 of " + testNQN + ": no path for 1.5s: ": opened,
			"nvme: subsystem " + testNQN + ": no path for 1.5s: ":      listed,
		} {
			if !errors.Is(err, ErrNoPath) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("it says %v, want %s…", err, want)
			}
		}
	})
}
