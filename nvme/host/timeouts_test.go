package host

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// hang makes the target never answer commands of the opcode on I/O queues.
func hang(op nvme.Opcode) func(*fakeQueue, *Request, *nvme.Completion) verdict {
	return func(q *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if q.attr.QID != 0 && r.Cmd.Opcode() == op {
			return never
		}
		return usual
	}
}

// aborting is hang with a target that honours Abort.
func aborting(op nvme.Opcode) func(*fakeQueue, *Request, *nvme.Completion) verdict {
	inner := hang(op)
	return func(q *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if q.attr.QID == 0 && r.Cmd.Opcode() == nvme.OpAbort {
			var late nvme.Completion
			late.SetCID(r.Cmd.AbortCID())
			late.SetStatus(nvme.StatusAbortRequested)
			q.t.mu.Lock()
			victim := q.t.queues[r.Cmd.AbortSQID()]
			q.t.mu.Unlock()
			victim.mu.Lock()
			victim.late = append(victim.late, late)
			victim.mu.Unlock()
			victim.poke()
			return usual
		}
		return inner(q, r, cqe)
	}
}

// connectNamespace connects and opens namespace 1.
func connectNamespace(t *testing.T, f *fakeTarget, change ...func(*Config)) (*Controller, *Namespace) {
	t.Helper()
	c := connect(t, f, change...)
	n, err := c.Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return c, n
}

func TestTimeoutAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.hook = aborting(nvme.OpFlush)
		c, n := connectNamespace(t, f)
		start := time.Now()
		err := n.Flush(t.Context())
		took := time.Since(start)
		if !errors.Is(err, nvme.StatusAbortRequested) || took < 30*time.Second || took > 34*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		if _, err := n.ReadAt(t.Context(), make([]byte, 512), 0); err != nil {
			t.Errorf("the controller was given up: %v", err)
		}
		if c.Counters().Aborts.Load() != 1 || c.Queues()[0].Counters().Timeouts.Load() != 1 {
			t.Errorf("%d aborts, %d timeouts", c.Counters().Aborts.Load(), c.Queues()[0].Counters().Timeouts.Load())
		}
		closeController(t, c)
	})
}

func TestTimeoutFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.hook = hang(nvme.OpFlush) // Abort succeeds, and has no effect
		c, n := connectNamespace(t, f, func(c *Config) { c.IOTimeout = time.Second })
		start := time.Now()
		err := n.Flush(t.Context())
		took := time.Since(start)
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, ErrLost) || took < 2*time.Second || took > 2500*time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
		<-c.Done()
		if err := c.Close(); !errors.Is(err, ErrTimeout) {
			t.Error(err)
		}
	})
}

// TestTimeoutWhileClosing: a command that times out during a shutdown isn't aborted: it ends with the controller,
// which refuses new commands (NVMe base, "Shutdown").
func TestTimeoutWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		var down atomic.Bool
		inner := hang(nvme.OpFlush)
		f.hook = func(q *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			if f.shuttingDown() && r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCPropertyGet && !down.Load() {
				return answered // CSTS doesn't report a shutdown yet
			}
			return inner(q, r, cqe)
		}
		c, n := connectNamespace(t, f, func(c *Config) { c.IOTimeout = time.Second })
		ended, closed := make(chan error, 1), make(chan error, 1)
		go func() { ended <- n.Flush(t.Context()) }()
		synctest.Wait()
		go func() { closed <- c.Close() }()
		time.Sleep(1900 * time.Millisecond)
		if timeouts, aborts := c.Queues()[0].Counters().Timeouts.Load(), f.commands("Abort"); timeouts != 1 || aborts != 0 || c.Err() != nil {
			t.Errorf("%d timeouts, %d aborts, %v", timeouts, aborts, c.Err())
		}
		down.Store(true)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// TestCancelAborts cancels more commands at once than may be aborted at once.
func TestCancelAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.hook = aborting(nvme.OpRead)
		c, n := connectNamespace(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		got, err := n.ReadAt(ctx, make([]byte, transferDepth*8192), 0)
		if took := time.Since(start); got != 0 || !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("%d bytes after %v: %v", got, took, err)
		}
		if c.Err() != nil {
			t.Error("the controller was given up")
		}
		if n := c.Counters().Aborts.Load(); n != transferDepth {
			t.Errorf("%d aborts", n)
		}
		closeController(t, c)
	})
}

// TestAbortLimit: no more Abort commands are outstanding at a controller at a time than it allows (ACL, 0's based);
// it would answer more with Abort Command Limit Exceeded. The others follow, except those for commands that have
// ended by then.
func TestAbortLimit(t *testing.T) {
	for _, acl := range []uint8{0, 1, 3, 255} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeTarget()
			f.identity.ACL = acl
			var held []nvme.Completion
			abort := aborting(nvme.OpRead)
			f.hook = func(q *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
				v := abort(q, r, cqe)
				if q.attr.QID != 0 || r.Cmd.Opcode() != nvme.OpAbort {
					return v
				}
				if held = append(held, *cqe); len(held) > int(acl)+1 {
					t.Errorf("ACL %d: %d Abort commands at a time", acl, len(held))
				}
				return never
			}
			c, n := connectNamespace(t, f)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := n.ReadAt(ctx, make([]byte, transferDepth*8192), 0)
				ended <- err
			}()
			time.Sleep(time.Second)
			for range transferDepth { // commands, each ended by an Abort that is answered a little later
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				answers := held
				held = nil
				for _, cqe := range answers {
					f.queues[0].answer(cqe)
				}
			}
			if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || c.Err() != nil {
				t.Errorf("ACL %d: %v; the controller: %v", acl, err, c.Err())
			}
			closeController(t, c)
		})
	}
}

func TestCancelGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.hook = hang(nvme.OpRead)
		c, n := connectNamespace(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := n.ReadAt(ctx, make([]byte, 3*8192), 0)
		if took := time.Since(start); !errors.Is(err, ErrLost) || !errors.Is(err, context.DeadlineExceeded) || took != time.Second+cancelGrace {
			t.Errorf("after %v: %v", took, err)
		}
		if err := c.Close(); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
	})
}

// TestIdleTimer makes sure that nothing wakes an idle queue.
func TestIdleTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, m := manual(8)
		q.SubmitOne(requests(1, func(int, *Request) {})[0])
		m.answer(m.cids[0], 0)
		defer m.sink.Closed(nil)
		time.Sleep(time.Minute)
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.timer.armed || q.timer.tick != 0 {
			t.Errorf("armed %v after %d ticks", q.timer.armed, q.timer.tick)
		}
	})
}
