package host

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// events handles asynchronous events: one request is always outstanding at the controller, unless it has sent more
// events than a sane one does, and a goroutine reads the log pages that events point to and tells the owner.
type events struct {
	req     Request
	notices nvme.AsyncEventConfig
	ended   chan struct{}        // closed when the controller refused the request
	arrived chan nvme.AsyncEvent // from responses to req, which isn't sent again before the event was taken
	due     time.Time            // when the last event would have come at the allowed rate
	unread  []nvme.AsyncEvent    // their log pages couldn't be read
	again   *time.Timer          // runs while there are any
	wait    time.Duration        // how long it runs
}

// A controller doesn't send an event again until its log page was read, but it may do so as soon as that happens.
// So the host asks for at most eventBurst events in quick succession, and in the long run for one per eventGap.
const (
	eventBurst = 32
	eventGap   = 100 * time.Millisecond
)

// After that a log page that couldn't be read is read again: first, and at most.
const (
	unreadFirst = time.Second
	unreadMost  = time.Minute
)

// wantedEvents are the notices that the host acts on.
const wantedEvents = nvme.AENNamespace | nvme.AENFirmware | nvme.AENANA | nvme.AENDiscovery

// Notices returns the asynchronous events that the host asked for and that the controller sends: those in OAES that
// the host acts on, or none if the controller refused the feature that asks for them or the request that waits for
// them.
func (c *Controller) Notices() nvme.AsyncEventConfig {
	select {
	case <-c.events.ended:
		return 0
	default:
		return c.events.notices
	}
}

// NoticesEnded is closed when the controller refuses the Asynchronous Event Request command. Connect doesn't wait
// for that: the command is only answered with the first event.
func (c *Controller) NoticesEnded() <-chan struct{} { return c.events.ended }

// startEvents asks for the events that the controller has, if any. A controller that refuses is used without them:
// what they would have reported shows when a command fails, or when somebody looks.
func (c *Controller) startEvents(ctx context.Context) error {
	want := c.identity.OAES & wantedEvents
	if want == 0 {
		return nil
	}
	if _, err := c.SetFeature(ctx, nvme.FeatAsyncEvent, 0, uint32(want), nil); refused(err) {
		c.cfg.Log.Warn("no asynchronous events: the controller refuses to be asked for them", c.logKeys("err", err)...)
		return nil
	} else if err != nil {
		return err
	}
	c.events.notices = want
	c.events.arrived = make(chan nvme.AsyncEvent, 1)
	c.run(c.handleEvents)
	c.events.req.unlimited = true
	c.events.req.Done = c.eventArrived
	c.awaitEvent()
	return nil
}

// awaitEvent sends the request for the next event.
func (c *Controller) awaitEvent() {
	c.events.req.Cmd.SetAsyncEvent()
	c.admin.SubmitOne(&c.events.req)
}

// eventArrived is the Done of the request. It is called in the transport's context.
func (c *Controller) eventArrived(r *Request) {
	if r.Err != nil {
		return // the controller is gone
	}
	err := r.Check()
	if errors.Is(err, nvme.StatusAbortSQDeleted) {
		return // a stopping target gives the request back before it closes the connection
	}
	if err != nil {
		c.cfg.Log.Warn("asynchronous events end", c.logKeys("err", err)...)
		close(c.events.ended)
		return
	}
	c.counters.AsyncEvents.Add(1)
	c.events.arrived <- nvme.AsyncEvent(r.CQE.DW0())
}

func (c *Controller) handleEvents() {
	e := &c.events
	e.wait, e.again = unreadFirst, time.NewTimer(unreadFirst)
	e.again.Stop()
	defer e.again.Stop()
	for {
		select {
		case event := <-e.arrived:
			if wait := e.pause(time.Now()); wait > 0 && !c.sleep(wait) {
				return
			}
			c.awaitEvent() // before this one is handled, so that the next may come meanwhile
			c.handle(event)
		case <-e.again.C:
			e.wait = min(2*e.wait, unreadMost)
			all := e.unread
			e.unread = nil
			for _, event := range all {
				c.handle(event)
			}
		case <-c.done:
			return
		}
	}
}

// pause returns how long to wait after an event before asking for the next one.
func (e *events) pause(now time.Time) time.Duration {
	if e.due.Before(now) {
		e.due = now
	}
	e.due = e.due.Add(eventGap)
	return e.due.Sub(now) - eventBurst*eventGap
}

// sleep waits for d; it returns false if the controller ended first.
func (c *Controller) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-c.done:
		return false
	}
}

// handle reads the log page, which lets the controller report the same event again, and tells the owner. What couldn't
// be read is read later, and the owner told once more: what changes until then isn't reported.
func (c *Controller) handle(e nvme.AsyncEvent) {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	c.cfg.Log.Debug("asynchronous event", c.logKeys("event", e)...)
	var changed []uint32 // nil: any may have changed
	var notices []nvme.ReservationNotification
	var err error
	switch e {
	case nvme.EventNamespaceChanged:
		changed, err = c.changedNamespaces(ctx)
	case nvme.EventReservation:
		notices, err = c.reservationNotices(ctx)
	default:
		err = c.clearEvent(ctx, e.LID())
	}
	if err != nil {
		c.cfg.Log.Warn("the log page of an asynchronous event is not known", c.logKeys("event", e, "err", err)...)
	}
	c.events.noteRead(e, err)
	if e == nvme.EventNamespaceChanged && c.cfg.NamespacesChanged != nil {
		c.cfg.NamespacesChanged(c, changed)
	}
	for _, n := range notices {
		if c.cfg.ReservationNotified != nil {
			c.cfg.ReservationNotified(c, n)
		}
	}
	if c.cfg.Event != nil {
		c.cfg.Event(c, e)
	}
}

// noteRead notes whether the log page of an event is to be read again: unless it was read, or the controller refused for
// good.
func (e *events) noteRead(event nvme.AsyncEvent, err error) {
	e.unread = slices.DeleteFunc(e.unread, func(o nvme.AsyncEvent) bool { return o == event })
	var status *nvme.StatusError
	if errors.As(err, &status) && !status.Status.DNR() {
		e.unread = append(e.unread, event)
		if len(e.unread) == 1 {
			e.again.Reset(e.wait)
		}
	} else if len(e.unread) == 0 {
		e.again.Stop()
		e.wait = unreadFirst
	}
}

// changedNamespaces returns the changed namespaces.
func (c *Controller) changedNamespaces(ctx context.Context) ([]uint32, error) {
	b := make([]byte, nvme.PageSize)
	if err := c.ReadLog(ctx, nvme.GetLogPage{LID: nvme.LogChangedNamespaces, NSID: nvme.NSIDAll}, b); err != nil {
		return nil, err
	}
	var p nvme.ChangedNamespaces
	err := p.Parse(b)
	return p.NSIDs, err
}

// mostNotices bounds the notifications that are read for one event, against a controller that never runs out of them.
const mostNotices = 256

// reservationNotices returns the notifications that there are, each of which is a page of its own; with an error, those
// before it.
func (c *Controller) reservationNotices(ctx context.Context) (all []nvme.ReservationNotification, err error) {
	b := make([]byte, nvme.ReservationNotificationSize)
	for range mostNotices {
		if err := c.ReadLog(ctx, nvme.GetLogPage{LID: nvme.LogReservation, NSID: nvme.NSIDAll}, b); err != nil {
			return all, err
		}
		var n nvme.ReservationNotification
		if err := n.Parse(b); err != nil || n.Type == nvme.ResvNoticeNone {
			return all, err
		}
		all = append(all, n)
		if n.Pages == 0 {
			break
		}
	}
	return all, nil
}

// clearEvent reads the beginning of a log page without retaining its event.
func (c *Controller) clearEvent(ctx context.Context, l nvme.LID) error {
	n := nvme.SMARTLogSize
	nsid := nvme.NSIDAll
	switch l {
	case nvme.LogSupported: // the event has no page
		return nil
	case nvme.LogError:
		n = nvme.ErrorEntrySize
	case nvme.LogANA:
		n, nsid = 16, nvme.NSIDNone
	case nvme.LogDiscovery:
		n, nsid = nvme.DiscoveryHeaderSize, nvme.NSIDNone
	}
	return c.ReadLog(ctx, nvme.GetLogPage{LID: l, NSID: nsid}, make([]byte, n))
}
