package multipath

import (
	"context"
	"errors"
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
		synctest.Wait() // the path counts its loss beside the read that it ended
		if a, b := s.Paths()[0].Counters.Losses.Load(), s.Paths()[1].Counters.Losses.Load(); a+b != 1 {
			t.Errorf("%d and %d losses", a, b)
		}
	})
}
