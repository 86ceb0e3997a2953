package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/limitlog"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func TestNamespaceEvents(t *testing.T) {
	f := newFakeTarget()
	told := make(chan []uint32)
	events := make(chan nvme.AsyncEvent, 1)
	c := connect(t, f, func(c *Config) {
		c.NamespacesChanged = func(_ *Controller, changed []uint32) { told <- changed }
		c.Event = func(_ *Controller, e nvme.AsyncEvent) { events <- e }
	})
	defer closeController(t, c)
	for round := range uint32(3) {
		f.mu.Lock()
		f.changed = nvme.NSIDList{1, round + 2}
		f.mu.Unlock()
		for !f.notify(nvme.EventNamespaceChanged) { // the host renews its request soon
		}
		if got := <-told; !slices.Equal(got, []uint32{1, round + 2}) {
			t.Errorf("told of %v", got)
		}
		if e := <-events; e != nvme.EventNamespaceChanged {
			t.Errorf("event %v", e)
		}
	}
	if c.Counters().AsyncEvents.Load() != 3 || f.commands("Get Log Page (Changed Attached Namespace List)") != 3 {
		t.Errorf("%d events", c.Counters().AsyncEvents.Load())
	}
}

// TestEventsCleared: an event is cleared by reading its log page without Retain Asynchronous Event (NVMe base,
// "Asynchronous Event Request"). Each of these pages belongs to the controller or its subsystem, not to a namespace.
func TestEventsCleared(t *testing.T) {
	f := newFakeTarget()
	var read []nvme.Command // under f.mu
	f.hook = func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpGetLogPage {
			return usual
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		read = append(read, r.Cmd)
		return answered
	}
	told := make(chan nvme.AsyncEvent)
	c := connect(t, f, func(c *Config) { c.Event = func(_ *Controller, e nvme.AsyncEvent) { told <- e } })
	for _, want := range []struct {
		event nvme.AsyncEvent
		lid   nvme.LID
		size  uint64 // in bytes
	}{
		{nvme.AsyncEvent(nvme.EventError) | nvme.AsyncEvent(nvme.LogError)<<16, nvme.LogError, nvme.ErrorEntrySize},
		{nvme.AsyncEvent(nvme.EventSMART) | nvme.AsyncEvent(nvme.LogSMART)<<16, nvme.LogSMART, nvme.SMARTLogSize},
		{nvme.EventFirmware, nvme.LogFirmware, nvme.FirmwareLogSize},
		{nvme.EventANAChanged, nvme.LogANA, 16},
		{nvme.EventDiscoveryChanged, nvme.LogDiscovery, nvme.DiscoveryHeaderSize},
		{nvme.AsyncEvent(nvme.EventVendor), 0, 0}, // has no page
	} {
		for !f.notify(want.event) { // the host renews its request soon
			runtime.Gosched()
		}
		if e := <-told; e != want.event {
			t.Errorf("told of %v, want %v", e, want.event)
		}
		f.mu.Lock()
		switch {
		case want.size == 0:
			if len(read) != 0 {
				t.Errorf("%v: a page is read", want.event)
			}
		case len(read) != 1:
			t.Errorf("%v: %d pages are read", want.event, len(read))
		default:
			cmd := &read[0]
			if cmd.LID() != want.lid || cmd.LogRAE() || cmd.LogOffset() != 0 || cmd.LogLength() != want.size {
				t.Errorf("%v: %d bytes of %v, retained %v", want.event, cmd.LogLength(), cmd.LID(), cmd.LogRAE())
			}
			if nsid := cmd.NSID(); nsid != nvme.NSIDNone && nsid != nvme.NSIDAll {
				t.Errorf("%v: NSID %d", want.event, nsid)
			}
		}
		read = nil
		f.mu.Unlock()
	}
	closeController(t, c)
}

func TestNoEventsWithoutOAES(t *testing.T) {
	f := newFakeTarget()
	f.identity.OAES = 0
	c := connect(t, f)
	closeController(t, c)
	if f.commands("Asynchronous Event Request") != 0 {
		t.Error("the controller has no events, and was asked for some")
	}
}

// TestEventRequestRefused: a controller that refuses the Asynchronous Event Request command gives no notices,
// whatever OAES says. That is known as soon as it has refused; it isn't asked again, and everything else goes on.
func TestEventRequestRefused(t *testing.T) {
	f := newFakeTarget()
	f.hook = func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpAsyncEvent {
			return usual
		}
		cqe.SetStatus(nvme.StatusInvalidOpcode | nvme.StatusDNR)
		return answered
	}
	c := connect(t, f)
	defer closeController(t, c)
	<-c.NoticesEnded()
	if got := c.Notices(); got != 0 {
		t.Errorf("notices %#x", got)
	}
	if _, err := c.Ping(t.Context()); err != nil || f.commands("Asynchronous Event Request") != 1 {
		t.Errorf("%d requests, %v", f.commands("Asynchronous Event Request"), err)
	}
}

func TestReadLogInPieces(t *testing.T) {
	f := newFakeTarget()
	c := connect(t, f)
	defer closeController(t, c)
	b := make([]byte, 10000)
	if err := c.ReadLog(t.Context(), nvme.GetLogPage{LID: nvme.LogError, Offset: 400}, b); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += 4 {
		if v := binary.LittleEndian.Uint32(b[i:]); v != uint32(i+400)/4 {
			t.Fatalf("byte %d holds dword %d", i, v)
		}
	}
	pieces := slices.DeleteFunc(f.arrived(), func(c nvme.Command) bool { return c.Opcode() != nvme.OpGetLogPage })
	for i, p := range pieces {
		if last := i == len(pieces)-1; p.LogRAE() == last || p.LogLength() > uint64(c.Limits().MaxTransfer) {
			t.Errorf("piece %d: RAE %v, %d bytes", i, p.LogRAE(), p.LogLength())
		}
	}
	if len(pieces) != 2 {
		t.Errorf("%d pieces", len(pieces))
	}
	if err := c.ReadLog(t.Context(), nvme.GetLogPage{LID: nvme.LogError}, b[:3]); !errors.Is(err, ErrRange) {
		t.Error(err)
	}
	if err := c.ReadLog(t.Context(), nvme.GetLogPage{LID: nvme.LogANA}, b); !errors.Is(err, nvme.StatusInvalidLogPage) {
		t.Error(err)
	}
	if s, err := c.SMART(t.Context()); err != nil || s.Kelvin() != 300 {
		t.Error(s, err)
	}
	if _, err := c.ANA(t.Context()); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

// TestCancelWhileClosing: a caller that gives up a command during Shutdown doesn't prevent an orderly shutdown; the
// command ends with the controller.
func TestCancelWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		c := connect(t, f)
		n, err := c.Namespace(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
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

func TestLossOfOneQueueIsLossOfAll(t *testing.T) {
	f := newFakeTarget()
	var log bytes.Buffer
	c := connect(t, f, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	cause := errors.New("reset by peer")
	f.queues[2].fail(cause)
	<-c.Done()
	if err := c.Err(); !errors.Is(err, ErrLost) || !errors.Is(err, cause) {
		t.Error(err)
	}
	if err := c.Close(); !errors.Is(err, cause) {
		t.Error(err)
	}
	for _, q := range f.queues {
		<-q.ended
	}
	want := fmt.Sprintf(`msg="controller lost" transport=%v remote=%v subsystem=%s cntlid=%d err=`, c.cfg.Transport.Type(), c.Remote(), c.cfg.SubNQN, c.CNTLID())
	if !strings.Contains(log.String(), want) || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("the log says\n%swant %s", &log, want)
	}
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

// countingHandler counts what is logged.
type countingHandler struct {
	slog.Handler
	n *atomic.Int64
}

func (h countingHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (h countingHandler) Handle(context.Context, slog.Record) error    { h.n.Add(1); return nil }

// TestEventsWithoutEnd: a controller that answers every request for an event at once is asked at a bounded rate,
// and doesn't flood the host's log. A controller with a short burst of events is served at once.
func TestEventsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.hook = func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			switch r.Cmd.Opcode() {
			case nvme.OpAsyncEvent:
				cqe.SetDW0(uint32(nvme.EventNamespaceChanged))
				return answered
			case nvme.OpGetLogPage:
				cqe.SetStatus(nvme.StatusInvalidField) // something to log each time
				return answered
			}
			return usual
		}
		var logged atomic.Int64
		told := 0
		c := connect(t, f, func(c *Config) {
			c.Log = slog.New(countingHandler{slog.DiscardHandler, &logged})
			c.NamespacesChanged = func(*Controller, []uint32) { told++ }
		})
		synctest.Wait()
		if n := c.Counters().AsyncEvents.Load(); n < eventBurst || n > eventBurst+1 {
			t.Errorf("%d events at once, want %d", n, eventBurst)
		}
		const span = time.Minute
		time.Sleep(span)
		synctest.Wait()
		if n, most := c.Counters().AsyncEvents.Load(), uint64(eventBurst+span/eventGap); n > most+1 || n < most-1 {
			t.Errorf("%d events in %v, want %d", n, span, most)
		}
		if n, most := logged.Load(), int64(limitlog.Burst+limitlog.Rate*(span/time.Second+1)); n > most {
			t.Errorf("%d messages for %d events, at most %d", n, c.Counters().AsyncEvents.Load(), most)
		}
		closeController(t, c)
		if n := c.Counters().AsyncEvents.Load(); uint64(told) < n-1 || uint64(told) > n {
			t.Errorf("told %d times of %d events", told, n)
		}
	})
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
			c := connect(t, f)
			n, err := c.Namespace(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
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

func TestFeatures(t *testing.T) {
	f := newFakeTarget()
	c := connect(t, f)
	defer closeController(t, c)
	if v, err := c.Feature(t.Context(), nvme.FeatKATO, nvme.SELCurrent, 0, 77, nil); err != nil || v != 77 {
		t.Error(v, err)
	}
	if v, err := c.SetFeature(t.Context(), nvme.FeatVolatileWC, 0, 1, nil); err != nil || v != 1 {
		t.Error(v, err)
	}
}

// withoutMemory is a transport that has no memory left.
type withoutMemory struct{ *fakeTarget }

func (withoutMemory) Alloc(int) ([]byte, error) { return nil, errors.New("no memory") }

// TestNoMemory: commands of the host itself don't need the transport's memory.
func TestNoMemory(t *testing.T) {
	f := newFakeTarget()
	c := connect(t, f, func(c *Config) { c.Transport = withoutMemory{f} })
	if got := c.Identify().ModelNumber(); got != "fake" {
		t.Errorf("model %q", got)
	}
	closeController(t, c)
}

// losing is a transport whose admin connection breaks while an I/O queue is being connected.
type losing struct{ *fakeTarget }

func (l losing) Dial(ctx context.Context, a QueueAttr) (TransportQueue, error) {
	if a.QID != 0 {
		l.queues[0].fail(errors.New("unplugged"))
		<-l.queues[0].ended
	}
	return l.fakeTarget.Dial(ctx, a)
}

// TestLostWhileDialing: a connection that is made when the controller is already lost is closed.
func TestLostWhileDialing(t *testing.T) {
	f := newFakeTarget()
	cfg := f.config()
	cfg.Transport = losing{f}
	if _, err := Connect(t.Context(), cfg); !errors.Is(err, ErrLost) {
		t.Errorf("Connect returned %v", err)
	}
	if len(f.queues) != 2 {
		t.Fatalf("%d connections", len(f.queues))
	}
	select {
	case <-f.queues[1].ended:
	default:
		t.Error("the connection of the I/O queue is still open")
	}
}
