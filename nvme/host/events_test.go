package host

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
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

// TestReservationNotices: a reservation notification is gone once it is read, so its owner gets what it says, however
// long the owner takes for each; and one event may be for several (NVMe base, "Reservation Notification").
func TestReservationNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		log := []nvme.ReservationNotification{ // under f.mu
			{Count: 1, Type: nvme.ResvNoticeReleased, Pages: 1, NSID: 1}, {Count: 2, Type: nvme.ResvNoticePreempted, NSID: 7},
		}
		f.hook = func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
			if r.Cmd.Opcode() != nvme.OpGetLogPage {
				return usual
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			copy(r.Data, log[0].AppendTo(nil))
			log = append(log[1:], nvme.ReservationNotification{})
			return answered
		}
		want := slices.Clone(log)
		var got []nvme.ReservationNotification
		told := make(chan nvme.AsyncEvent)
		c := connect(t, f, func(c *Config) {
			c.ReservationNotified = func(_ *Controller, n nvme.ReservationNotification) {
				got = append(got, n)
				time.Sleep(2 * adminTimeout)
			}
			c.Event = func(_ *Controller, e nvme.AsyncEvent) { told <- e }
		})
		defer closeController(t, c)
		for range 2 { // there is nothing to read for the second
			synctest.Wait()
			if !f.notify(nvme.EventReservation) {
				t.Fatal("no request is outstanding")
			}
			if e := <-told; e != nvme.EventReservation {
				t.Errorf("event %v", e)
			}
			if !slices.Equal(got, want) {
				t.Errorf("told of %v, want %v", got, want)
			}
		}
	})
}

// TestEventsUnread: a controller doesn't send an event again before its log page was read (NVMe base, "Asynchronous
// Event Request"). When reading it fails, the host reads it later and looks once more at what the event is about, since
// that may have changed in between.
func TestEventsUnread(t *testing.T) {
	all := []nvme.AsyncEvent{nvme.EventNamespaceChanged, nvme.EventANAChanged}
	for fails := range 16 { // of the first reads of either page, two bits each
		synctest.Test(t, func(t *testing.T) {
			f := newFakeTarget()
			// Both under f.mu.
			left := map[nvme.LID]int{all[0].LID(): fails % 4, all[1].LID(): fails / 4}
			told := map[nvme.AsyncEvent]int{} // since the page was read
			f.hook = func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
				if r.Cmd.Opcode() != nvme.OpGetLogPage {
					return usual
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if left[r.Cmd.LID()]--; left[r.Cmd.LID()] >= 0 {
					cqe.SetStatus(nvme.StatusInternalError)
				}
				return answered
			}
			c := connect(t, f, func(c *Config) {
				c.Event = func(_ *Controller, e nvme.AsyncEvent) {
					f.mu.Lock()
					if left[e.LID()] < 0 {
						told[e]++
					}
					f.mu.Unlock()
				}
			})
			for _, e := range all {
				synctest.Wait()
				if !f.notify(e) {
					t.Error("no request is outstanding")
				}
			}
			time.Sleep(time.Hour)
			closeController(t, c)
			for _, e := range all {
				if told[e] != 1 {
					t.Errorf("%d failures, and %d: after its page was read, the owner was told %d times of %v", fails%4, fails/4, told[e], e)
				}
			}
		})
	}
}

// TestEventPageRefused: a log page that the controller refuses for good isn't read again.
func TestEventPageRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.hook = func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			if r.Cmd.Opcode() != nvme.OpGetLogPage {
				return usual
			}
			cqe.SetStatus(nvme.StatusInvalidLogPage | nvme.StatusDNR)
			return answered
		}
		c := connect(t, f)
		synctest.Wait()
		f.notify(nvme.EventNamespaceChanged)
		time.Sleep(time.Hour)
		if n := f.commands("Get Log Page (Changed Attached Namespace List)"); n != 1 {
			t.Errorf("a page that the controller doesn't have is read %d times", n)
		}
		closeController(t, c)
	})
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

// TestEventRequestGivenBack: a controller that is about to end aborts the Asynchronous Event Request command as it
// deletes the queue (NVMe base, "Command Aborted due to SQ Deletion"). That doesn't say that it gives no notices.
func TestEventRequestGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.hook = func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			if r.Cmd.Opcode() != nvme.OpAsyncEvent {
				return usual
			}
			cqe.SetStatus(nvme.StatusAbortSQDeleted)
			return answered
		}
		c := connect(t, f)
		defer closeController(t, c)
		synctest.Wait()
		select {
		case <-c.NoticesEnded():
			t.Error("the controller is said to give no notices")
		default:
		}
		if n := f.commands("Asynchronous Event Request"); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
	})
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
