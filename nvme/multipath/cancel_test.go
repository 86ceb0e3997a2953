package multipath

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

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

// TestCancelUnderWay: a command that a controller doesn't answer is aborted, and if that doesn't end it the
// controller is given up, which doesn't affect the other path.
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
		synctest.Wait() // the path counts its loss concurrently with the end of the read
		if a, b := s.Paths()[0].Counters.Losses.Load(), s.Paths()[1].Counters.Losses.Load(); a+b != 1 {
			t.Errorf("%d and %d losses", a, b)
		}
	})
}

// catcher is a Carrier that holds a request, so that a cancellation finds it nowhere.
type catcher struct {
	carrier
	caught chan *host.Request
}

func (c catcher) SubmitOne(r *host.Request)  { c.caught <- r }
func (c catcher) Cancel(*host.Request, bool) { close(c.caught) }

// TestCancelBetweenPaths: a call whose context ends between the answer of one path and the use of another is
// aborted on the latter.
func TestCancelBetweenPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		defer r.close(s)
		r.links[1].set(func(l *link) { l.hold = func(*nvme.Command) bool { return true } })
		c := catcher{carrier{n.space}, make(chan *host.Request, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Over(c, n.MaxTransfer()).Flush(ctx) }()
		q := <-c.caught
		cancel()
		<-c.caught // nothing was found
		first := (*n.ways.Load())[slices.IndexFunc(*n.ways.Load(), func(w *way) bool { return w.path == s.paths[0] })]
		n.elsewhere(first, q)
		synctest.Wait()
		if aborts := s.Controllers()[1].Counters().Aborts.Load(); aborts != 1 {
			t.Errorf("%d aborts", aborts)
		}
		r.links[1].cut()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestCancelOnce: a request that is cancelled while it waits for a path or for its delay ends once: it isn't sent
// when the path or the time comes.
func TestCancelOnce(t *testing.T) {
	for name, wait := range map[string]func(r *rig){
		"for a path": func(r *rig) { r.links[0].cut() },
		"for its time": func(r *rig) {
			r.links[0].set(func(l *link) {
				l.answer = func(_ *nvme.Command, cqe *nvme.Completion) { cqe.SetStatus(nvme.StatusInternalPathError) }
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				s, n := r.connect()
				defer r.close(s)
				wait(r)
				synctest.Wait()
				ends := 0
				q := &host.Request{Done: func(*host.Request) { ends++ }}
				q.Cmd.SetFlush(1)
				n.Lane(0).SubmitOne(q)
				synctest.Wait()
				if ends != 0 {
					t.Fatal("it doesn't wait")
				}
				carrier{n.space}.Cancel(q, false)
				r.links[0].set(func(l *link) { l.answer = nil })
				r.links[0].restore(r.tgt)
				time.Sleep(time.Second)
				synctest.Wait()
				if begun := s.Paths()[0].Counters.Begun.Load(); ends != 1 || !errors.Is(q.Err, errCancelled) || name == "for a path" && begun != 0 {
					t.Errorf("it ended %d times, with %v, and %d were sent", ends, q.Err, begun)
				}
				if s.Waiting() != 0 {
					t.Errorf("%d wait", s.Waiting())
				}
			})
		})
	}
}
