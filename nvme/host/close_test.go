package host

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestCancelWhileClosing: a caller that gives up a command during Shutdown doesn't prevent an orderly shutdown; the
// command ends with the controller.
func TestCancelWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		c, n := connectNamespace(t, f)
		began := time.Now()
		f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
			switch {
			case r.Cmd.Opcode() == nvme.OpRead:
				return never
			case r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCPropertyGet && time.Since(began) < 3*time.Second:
				return answered // CSTS says nothing of a shutdown yet
			}
			return usual
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		read, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := n.ReadAt(ctx, make([]byte, 512), 0)
			read <- err
		}()
		synctest.Wait()
		go func() { closed <- c.Close() }()
		time.Sleep(time.Second)
		cancel()
		if err := <-closed; err != nil || time.Since(began) < 3*time.Second {
			t.Errorf("closed after %v: %v", time.Since(began), err)
		}
		if err := <-read; !errors.Is(err, ErrClosed) || !errors.Is(err, context.Canceled) {
			t.Errorf("read: %v", err)
		}
	})
}

// TestCloseWithSilentTarget: a controller that is closed and doesn't shut down is abandoned, and that is no loss:
// outstanding commands end because it was closed, whatever else ends it in the meantime, and only Close reports
// what that was.
func TestCloseWithSilentTarget(t *testing.T) {
	silent := func(*fakeTarget) {}
	for _, tc := range []struct {
		name   string
		rtd3e  time.Duration
		kato   time.Duration
		during func(*fakeTarget)
		cause  error
		within time.Duration
	}{
		{"silence", 0, -1, silent, ErrTimeout, shutdownLeast},
		{"no keep alive", time.Minute, 5 * time.Second, silent, ErrKeepAlive, 5 * time.Second},
		{"a connection that breaks", time.Minute, -1, func(f *fakeTarget) { f.breakAll(errReset) }, errReset, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeTarget()
				f.identity.RTD3E = uint32(tc.rtd3e.Microseconds())
				c := connect(t, f, func(c *Config) { c.KATO = tc.kato })
				f.setHook(func(*fakeQueue, *Request, *nvme.Completion) verdict { return never })
				ended := make(chan error, 1)
				r := &Request{Done: func(r *Request) { ended <- r.Err }}
				r.Cmd.SetFlush(1)
				c.Queues()[0].SubmitOne(r)
				closed := make(chan error, 1)
				start := time.Now()
				go func() { closed <- c.Close() }()
				synctest.Wait()
				tc.during(f)
				err := <-closed
				if took := time.Since(start); !errors.Is(err, tc.cause) || took > tc.within {
					t.Errorf("closed after %v: %v", took, err)
				}
				if err := <-ended; !errors.Is(err, ErrClosed) || errors.Is(err, ErrLost) {
					t.Errorf("what was outstanding: %v", err)
				}
				if err := c.Err(); !errors.Is(err, ErrClosed) || errors.Is(err, ErrLost) {
					t.Errorf("the controller: %v", err)
				}
			})
		})
	}
}

// TestShutdownTwice: a second Shutdown waits for the first no longer than its own context allows, and cuts it short then.
func TestShutdownTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		c := connect(t, f, func(c *Config) { c.KATO = -1 })
		f.setHook(func(*fakeQueue, *Request, *nvme.Completion) verdict { return never })
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := c.Shutdown(ctx)
		if took := time.Since(start); err != nil || took != time.Second {
			t.Errorf("the second ended after %v: %v", took, err)
		}
		if err := <-closed; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first: %v", err)
		}
	})
}

// TestAdminWhileClosing: an admin command during Shutdown isn't sent, because the controller would refuse it with an
// error that says nothing of the shutdown.
func TestAdminWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		c := connect(t, f)
		began := time.Now()
		f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			switch {
			case r.Cmd.Opcode() != nvme.OpFabrics:
				cqe.SetStatus(nvme.StatusCommandSequence | nvme.StatusDNR)
				return answered
			case r.Cmd.FCType() == nvme.FCPropertyGet && time.Since(began) < time.Second:
				return answered // CSTS says nothing of a shutdown yet
			}
			return usual
		})
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		if _, err := c.SMART(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("SMART: %v", err)
		}
		if err := <-closed; err != nil || time.Since(began) < time.Second {
			t.Errorf("closed after %v: %v", time.Since(began), err)
		}
	})
}

// errReset is the error with which connections of tests break.
var errReset = errors.New("reset by peer")

// TestCancelWhileClosingTooLong: a caller that gives up a command during Shutdown waits no longer than otherwise.
func TestCancelWhileClosingTooLong(t *testing.T) {
	for _, admin := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeTarget()
			f.identity.RTD3E = uint32(time.Minute.Microseconds())
			c, n := connectNamespace(t, f, func(c *Config) { c.KATO = -1 })
			f.setHook(func(*fakeQueue, *Request, *nvme.Completion) verdict { return never })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended, closed := make(chan error, 1), make(chan error, 1)
			go func() {
				var err error
				if admin {
					_, err = c.Ping(ctx)
				} else {
					err = n.Flush(ctx)
				}
				ended <- err
			}()
			synctest.Wait()
			go func() { closed <- c.Close() }()
			time.Sleep(time.Second)
			cancel()
			began := time.Now()
			if err := <-ended; time.Since(began) != cancelGrace || !errors.Is(err, ErrClosed) || errors.Is(err, ErrLost) {
				t.Errorf("the command, after %v: %v", time.Since(began), err)
			}
			if err := <-closed; !errors.Is(err, ErrTimeout) {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func TestCloseEndsOutstanding(t *testing.T) {
	f := newFakeTarget()
	f.hook = hang(nvme.OpFlush)
	c := connect(t, f)
	ended := make(chan error, 1)
	r := &Request{Done: func(r *Request) { ended <- r.Err }}
	r.Cmd.SetFlush(1)
	c.Queues()[0].SubmitOne(r)
	closeController(t, c)
	if err := <-ended; !errors.Is(err, ErrClosed) || errors.Is(err, ErrLost) {
		t.Error(err)
	}
	if r.Status() != nvme.StatusHostAborted {
		t.Error(r.Status())
	}
}

// TestSubmitWhileClosing: requests submitted on an I/O queue during Shutdown end at once and aren't sent, like
// those submitted later; nor are requests sent that were waiting for others to end.
func TestSubmitWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		c := connect(t, f)
		var sent atomic.Int64
		var down atomic.Bool
		answers := make(chan nvme.Completion, c.Limits().QueueSize)
		f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			switch {
			case r.Cmd.Opcode() == nvme.OpFlush:
				sent.Add(1)
				answers <- *cqe
				return never
			case r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCPropertyGet && !down.Load():
				return answered // CSTS says nothing of a shutdown yet
			}
			return usual
		})
		ended := make(chan error, c.Limits().QueueSize+1)
		submit := func() {
			r := &Request{Done: func(r *Request) { ended <- r.Err }}
			r.Cmd.SetFlush(1)
			c.Queues()[0].SubmitOne(r)
		}
		depth := c.Queues()[0].Depth()
		for range depth + 1 {
			submit()
		}
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		submit()
		select {
		case err := <-ended:
			if !errors.Is(err, ErrClosed) {
				t.Errorf("what came late ended with %v, want %v", err, ErrClosed)
			}
		default:
			t.Error("what came late isn't refused")
		}
		f.queues[1].answer(<-answers)
		synctest.Wait()
		if err := <-ended; err != nil {
			t.Errorf("what was answered ended with %v", err)
		}
		down.Store(true)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		for range depth {
			if err := <-ended; !errors.Is(err, ErrClosed) {
				t.Errorf("what was outstanding, or waited, ended with %v, want %v", err, ErrClosed)
			}
		}
		if n := sent.Load(); n != int64(depth) {
			t.Errorf("%d commands were sent, want %d", n, depth)
		}
	})
}

// TestOvertakenByClose: a command that the controller refuses because the shutdown, on the other connection,
// overtook it ends like one that was left unanswered; one that got any other answer has been answered.
func TestOvertakenByClose(t *testing.T) {
	for status, want := range map[nvme.Status]error{
		nvme.StatusCommandSequence | nvme.StatusDNR: ErrClosed, nvme.StatusSuccess: nil, nvme.StatusLBAOutOfRange: nvme.StatusLBAOutOfRange,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeTarget()
			c, n := connectNamespace(t, f)
			var read nvme.Completion
			f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
				switch {
				case r.Cmd.Opcode() == nvme.OpRead:
					read = *cqe
					return never
				case r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCPropertySet:
					read.SetStatus(status)
					f.queues[1].answer(read)
					synctest.Wait()
				}
				return usual
			})
			ended := make(chan error, 1)
			go func() {
				_, err := n.ReadAt(t.Context(), make([]byte, 512), 0)
				ended <- err
			}()
			synctest.Wait()
			closeController(t, c)
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("answered with %v it ended with %v, want %v", status, err, want)
			}
		})
	}
}

// TestNeverShutDown: a controller that doesn't shut down is abandoned after the time that it says it needs (RTD3E),
// within bounds; the error names the controller and what was waited for.
func TestNeverShutDown(t *testing.T) {
	for rtd3e, limit := range map[time.Duration]time.Duration{
		0: shutdownLeast, time.Second: shutdownLeast, 20 * time.Second: 20 * time.Second, time.Hour: shutdownMost,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeTarget()
			f.identity.RTD3E = uint32(rtd3e.Microseconds())
			c := connect(t, f)
			f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
				if r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCPropertyGet {
					cqe.SetDW0(uint32(nvme.CSTSReady))
					return answered
				}
				return usual
			})
			began := time.Now()
			err := c.Close()
			if took := time.Since(began); took != limit {
				t.Errorf("RTD3E %v: it took %v", rtd3e, took)
			}
			want := fmt.Sprintf("nvme: shutdown of %s at 127.0.0.1:4420: CSTS is still 0x1: context deadline exceeded "+
				"(command timeout: not shut down after %v (RTD3E))", testNQN, limit)
			if !errors.Is(err, ErrTimeout) || err.Error() != want {
				t.Errorf("it says %v, want %s", err, want)
			}
		})
	}
}

// TestShutdownMayCloseQueues: SPDK's target, when told to shut down, closes the connections of the I/O queues
// before it reports that it has. The host asked for that: nothing is lost.
func TestShutdownMayCloseQueues(t *testing.T) {
	f := newFakeTarget()
	f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		switch c := &r.Cmd; {
		case c.Opcode() == nvme.OpFlush:
			return never
		case c.Opcode() == nvme.OpFabrics && c.FCType() == nvme.FCPropertySet && nvme.CC(c.PropertyValue()).Shutdown() != nvme.CCSHNNone:
			for _, q := range f.queues[1:] {
				q.fail(errors.New("closed by the peer"))
				<-q.ended
			}
		}
		return usual
	})
	c := connect(t, f)
	ended := make(chan error, 1)
	r := &Request{Done: func(r *Request) { ended <- r.Err }}
	r.Cmd.SetFlush(1)
	c.Queues()[0].SubmitOne(r)
	closeController(t, c)
	if err := c.Err(); !errors.Is(err, ErrClosed) || errors.Is(err, ErrLost) {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrClosed) || errors.Is(err, ErrLost) {
		t.Errorf("what was outstanding: %v", err)
	}
}
