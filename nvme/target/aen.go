package target

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// maxEventRequests is AERL + 1: how many Asynchronous Event Requests a host may have outstanding.
const maxEventRequests = 4

// eventKind is an asynchronous event that a controller can send.
type eventKind uint8

const (
	eventNamespace eventKind = iota
	eventANA
	eventReservation
	eventSanitize
	eventDiscovery
	eventKinds
)

// The event that the host gets for each kind, and the bit of feature 0Bh that enables it. Reservation notifications
// have feature 82h of their own, and the end of a sanitize operation is always reported.
var (
	eventResult = [eventKinds]nvme.AsyncEvent{nvme.EventNamespaceChanged, nvme.EventANAChanged, nvme.EventReservation,
		nvme.EventSanitized, nvme.EventDiscoveryChanged}
	eventConfig = [eventKinds]nvme.AsyncEventConfig{nvme.AENNamespace, nvme.AENANA, 0, 0, nvme.AENDiscovery}
)

// events are the event requests that a controller holds and the events that wait for one. Guarded by controller.mu.
type events struct {
	held    []*Request
	pending [eventKinds]bool // to be reported
	masked  [eventKinds]bool // reported, and the host hasn't read the log since
	changed []uint32         // NSIDs, ascending, of the changed namespace list

	resv      []nvme.ReservationNotification // not read yet, oldest first
	resvCount uint64

	context []byte // the reporting context of the Persistent Event log; nil if there is none
}

func (e *events) takeAll() []*Request {
	held := e.held
	e.held = nil
	return held
}

// answer is an event request and its result.
type answer struct {
	r     *Request
	event nvme.AsyncEvent
}

// take pairs events with requests. Called with controller.mu held; the caller calls deliver after releasing it.
func (e *events) take() (out []answer) {
	for k := range eventKinds {
		if len(e.held) == 0 {
			break
		}
		if e.pending[k] && !e.masked[k] {
			e.pending[k], e.masked[k] = false, true
			out = append(out, answer{e.held[0], eventResult[k]})
			e.held = slices.Delete(e.held, 0, 1)
		}
	}
	return out
}

// unwant drops the pending events of kinds that the host no longer wants. Called with controller.mu held.
func (e *events) unwant(wanted nvme.AsyncEventConfig) {
	for k, bit := range eventConfig {
		if bit&^wanted != 0 {
			e.pending[k] = false
		}
	}
}

func deliver(out []answer) {
	for _, a := range out {
		a.r.CQE.SetDW0(uint32(a.event))
		a.r.respond(nvme.StatusSuccess)
	}
}

// asyncEvent executes Asynchronous Event Request, which is held until there is an event.
func (r *Request) asyncEvent() {
	c := r.engine.q.ctrl
	c.mu.Lock()
	switch {
	case !c.live.Load():
		c.mu.Unlock()
		r.respond(nvme.StatusAbortSQDeleted)
		return
	case len(c.events.held) >= maxEventRequests:
		c.mu.Unlock()
		r.fail(nvme.StatusAsyncEventLimit, noLoc)
		return
	}
	c.events.held = append(c.events.held, r)
	out := c.events.take()
	c.mu.Unlock()
	deliver(out)
}

// raise notes an event if the host wants its kind. Called with mu held.
func (c *controller) raise(k eventKind) []answer {
	if bit := eventConfig[k]; c.dead || bit != 0 && c.features.asyncEvent&bit == 0 {
		return nil
	}
	c.events.pending[k] = true
	return c.events.take()
}

// tell is raise for a caller that doesn't hold mu, and calls deliver.
func (c *controller) tell(k eventKind) []answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raise(k)
}

// namespaceChanged enters a namespace in the changed namespace list and tells the host.
func (c *controller) namespaceChanged(nsid uint32) {
	c.mu.Lock()
	e := &c.events
	if i, ok := slices.BinarySearch(e.changed, nsid); !ok {
		e.changed = slices.Insert(e.changed, i, nsid)
	}
	out := c.raise(eventNamespace)
	c.mu.Unlock()
	deliver(out)
}

// changedNamespaces returns the changed namespace list. Without retain, reading it empties it and lets the next event
// through.
func (c *controller) changedNamespaces(retain bool) nvme.ChangedNamespaces {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := nvme.ChangedNamespaces{NSIDs: slices.Clone(c.events.changed)}
	if !retain {
		c.events.changed = nil
		c.rearm(eventNamespace)
	}
	return p
}

// rearm lets the next event of a kind through. One that waits is dropped: the host has just read what it would tell of.
// Called with mu held.
func (c *controller) rearm(k eventKind) {
	c.events.pending[k], c.events.masked[k] = false, false
}
