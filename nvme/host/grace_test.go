package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// slowCarrier keeps its requests until the test ends them. Its last Cancel takes time.
type slowCarrier struct {
	*Controller
	under     *Request // the outstanding one
	cancelled int      // how often an outstanding request was cancelled for the last time
	going     chan struct{}
}

func (s *slowCarrier) SubmitOne(r *Request) { s.under = r }

func (s *slowCarrier) Cancel(r *Request, last bool) {
	if !last {
		return
	}
	<-s.going
	if r == s.under {
		s.cancelled++
	}
}

func (s *slowCarrier) end() {
	r := s.under
	s.under = nil
	r.CQE.Reset()
	r.Done(r)
}

// TestGraceEnds: after a transfer that was cancelled and that ended just when its controller was to be given up,
// the next transfer isn't mistaken for it.
func TestGraceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNamespace(t, newFakeTarget())
		s := &slowCarrier{Controller: n.Controller(), going: make(chan struct{})}
		n = n.Over(s, n.MaxTransfer())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		second := make(chan error, 1)
		go func() {
			b := make([]byte, 512)
			if _, err := n.ReadAt(ctx, b, 0); err != nil {
				t.Error(err)
			}
			_, err := n.ReadAt(context.WithoutCancel(ctx), b, 0)
			second <- err
		}()
		time.Sleep(time.Second + cancelGrace)
		synctest.Wait()
		s.end()
		synctest.Wait()
		close(s.going)
		synctest.Wait()
		if s.cancelled != 0 {
			t.Error("the second transfer would have cost the controller")
		}
		s.end()
		if err := <-second; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
