package host

import (
	"context"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// events handles asynchronous events: one request is always with the controller, and a
// goroutine reads the log pages that events point to and tells the owner.
type events struct {
	req     Request
	notices nvme.AsyncEventConfig
	pending chan nvme.AsyncEvent
}

// wantedEvents are the notices that the host does something about.
const wantedEvents = nvme.AENNamespace | nvme.AENFirmware | nvme.AENANA | nvme.AENDiscovery

// Notices are the asynchronous events that the host asked for and that the controller sends: those of OAES that the host
// does something about, and none where the controller refused to be asked.
func (c *Controller) Notices() nvme.AsyncEventConfig { return c.events.notices }

// startEvents asks for the events that the controller has, if any. One that refuses is used without them:
// what they would have told shows when a command fails, or when somebody looks.
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
	// An event isn't sent again until its log page was read, so that one of each kind is the
	// most that can wait: 32 bits of configuration.
	c.events.pending = make(chan nvme.AsyncEvent, 32)
	c.work.Add(1)
	go c.handleEvents()
	c.events.req.unlimited = true
	c.events.req.Done = c.eventArrived
	c.events.req.Cmd.SetAsyncEvent()
	c.admin.SubmitOne(&c.events.req)
	return nil
}

// eventArrived is called in the transport's context.
func (c *Controller) eventArrived(r *Request) {
	if r.Err != nil {
		return // the controller is gone
	}
	if err := r.Check(); err != nil {
		c.cfg.Log.Warn("asynchronous events end", c.logKeys("err", err)...)
		return
	}
	c.counters.AsyncEvents.Add(1)
	select {
	case c.events.pending <- nvme.AsyncEvent(r.CQE.DW0()):
	default:
		c.cfg.Log.Warn("asynchronous event dropped: too many wait", c.logKeys("event", nvme.AsyncEvent(r.CQE.DW0()))...)
	}
	r.Cmd.SetAsyncEvent()
	c.admin.SubmitOne(r)
}

func (c *Controller) handleEvents() {
	defer c.work.Done()
	for {
		select {
		case e := <-c.events.pending:
			c.handle(e)
		case <-c.done:
			return
		}
	}
}

// handle reads the page, which lets the controller report the same event again, and tells the
// owner.
func (c *Controller) handle(e nvme.AsyncEvent) {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	c.cfg.Log.Debug("asynchronous event", c.logKeys("event", e)...)
	switch e {
	case nvme.EventNamespaceChanged:
		changed, err := c.changedNamespaces(ctx)
		if err != nil {
			c.cfg.Log.Warn("changed namespaces not known", c.logKeys("err", err)...)
		}
		if c.cfg.NamespacesChanged != nil {
			c.cfg.NamespacesChanged(c, changed)
		}
	default:
		if err := c.clearEvent(ctx, e.LID()); err != nil {
			c.cfg.Log.Warn("asynchronous event not cleared", c.logKeys("event", e, "err", err)...)
		}
	}
	if c.cfg.Event != nil {
		c.cfg.Event(c, e)
	}
}

// changedNamespaces is nil where any may have changed.
func (c *Controller) changedNamespaces(ctx context.Context) ([]uint32, error) {
	b := make([]byte, nvme.PageSize)
	if err := c.ReadLog(ctx, nvme.GetLogPage{LID: nvme.LogChangedNamespaces, NSID: nvme.NSIDAll}, b); err != nil {
		return nil, err
	}
	var p nvme.ChangedNamespaces
	err := p.Parse(b)
	return p.NSIDs, err
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
