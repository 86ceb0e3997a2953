package target

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// The Persistent Event log of a subsystem, if there is a Store. Its length is bounded. An event is in memory at once
// and in the Store soon after, so a power failure may lose the last ones.

const (
	maxPersistentEvents = 256
	// maxPersistentData is the most data that an event may have, in bytes: more than any of ours has.
	maxPersistentData = 64
	// persistentUnits is PELS: what the log can grow to, in units of 64 KiB.
	persistentUnits = 1
)

// persistentLog is the log of a subsystem.
type persistentLog struct {
	mu     sync.Mutex
	kept   savedEvents
	saving bool // a goroutine is saving
	again  bool // and has to save once more
}

// savedEvents is the log as it is stored.
type savedEvents struct {
	PowerCycles uint64                 `json:"power_cycles"` // how often the subsystem was started
	Generation  uint16                 `json:"generation"`   // of reporting contexts
	Events      []nvme.PersistentEvent `json:"events"`       // oldest first
}

// supportedPersistent are the types of events that the log may hold.
var supportedPersistent = []nvme.PersistentEventType{
	nvme.PersistentTimestamp, nvme.PersistentPowerOn, nvme.PersistentNamespace, nvme.PersistentFormatStart,
	nvme.PersistentFormatEnd, nvme.PersistentSanitize, nvme.PersistentSanitizeEnd,
}

// loadEvents loads the log and notes that the subsystem was started.
func (s *Subsystem) loadEvents() error {
	if s.t.store == nil {
		return nil
	}
	kept, err := s.storedEvents()
	if errors.Is(err, ErrState) {
		err = s.setEventsAside(err)
	}
	if err != nil {
		return err
	}
	s.persistent.kept = kept
	s.persistent.kept.PowerCycles++
	s.noteReset(nil)
	return nil
}

// storedEvents returns the log as it was saved.
func (s *Subsystem) storedEvents() (kept savedEvents, err error) {
	if err := s.loadState(stateEvents, &kept); err != nil {
		return savedEvents{}, err
	}
	if len(kept.Events) > maxPersistentEvents {
		return savedEvents{}, s.stateError(stateEvents, fmt.Errorf("there are %d, at most %d", len(kept.Events), maxPersistentEvents))
	}
	for i := range kept.Events {
		if n := len(kept.Events[i].Data); n > maxPersistentData {
			return savedEvents{}, s.stateError(stateEvents, fmt.Errorf("event %d has %d bytes, at most %d", i, n, maxPersistentData))
		}
	}
	return kept, nil
}

// setEventsAside saves a log that can't be used under another name. It only tells what happened, and so, other than the
// rest of the state, keeps nobody from the data.
func (s *Subsystem) setEventsAside(why error) error {
	name := s.stateName(stateEvents)
	b, err := s.t.store.Load(name)
	if err == nil {
		err = s.t.store.Save(name+"-damaged", b)
	}
	if err == nil {
		s.t.log.Error("the log of persistent events begins anew", "subsystem", s.nqn, "err", why, "kept", name+"-damaged")
	}
	return err
}

// noteReset enters that a controller was reset, or, with nil, that the subsystem was started.
func (s *Subsystem) noteReset(c *controller) {
	e := nvme.PowerOnEvent{
		PowerCycle: uint32(s.persistent.kept.PowerCycles), // constant by now
		PowerOn:    uint64(time.Duration(s.t.Now()).Milliseconds()),
		Timestamp:  wallClock(),
	}
	nvme.PutPadded(e.Firmware[:], s.firmware)
	if c != nil {
		e.CNTLID = c.id
	}
	s.noteEvent(nvme.PersistentPowerOn, c, &e)
}

// wallClock returns the time for events: milliseconds since 1970, in 48 bits.
func wallClock() uint64 { return uint64(time.Now().UnixMilli()) & (1<<48 - 1) }

// noteEvent enters an event of a controller, or of none. data is a pointer to one of the event types.
func (s *Subsystem) noteEvent(kind nvme.PersistentEventType, c *controller, data any) {
	if s.t.store == nil || s.discovery {
		return
	}
	e := nvme.PersistentEvent{Type: kind, Revision: 1, Timestamp: wallClock(), Data: nvme.PersistentData(data)}
	if kind == nvme.PersistentNamespace {
		e.Revision = 2
	}
	if c != nil {
		e.CNTLID = c.id
	}
	l := &s.persistent
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.Events = append(l.kept.Events, e)
	if len(l.kept.Events) > maxPersistentEvents {
		l.kept.Events = withoutLeast(l.kept.Events)
	}
	s.keepEvents()
}

// withoutLeast returns a log that is too long without its least informative event: the oldest timestamp change or reset
// of a controller, which hosts cause by connecting, or else the oldest event.
func withoutLeast(events []nvme.PersistentEvent) []nvme.PersistentEvent {
	i := slices.IndexFunc(events, func(e nvme.PersistentEvent) bool {
		return e.Type == nvme.PersistentTimestamp || e.Type == nvme.PersistentPowerOn && e.CNTLID != 0
	})
	return slices.Delete(slices.Clone(events), max(i, 0), max(i, 0)+1)
}

// keepEvents starts saving the log. Called with persistent.mu held.
func (s *Subsystem) keepEvents() {
	l := &s.persistent
	l.again = true
	if !l.saving {
		l.saving = true
		s.work.Go(s.saveEvents)
	}
}

// saveEvents saves the log until there is nothing new.
func (s *Subsystem) saveEvents() {
	l := &s.persistent
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.again {
		l.again = false
		kept := l.kept // later changes leave its events as they are
		l.mu.Unlock()
		if err := s.saveState(stateEvents, &kept); err != nil {
			s.t.log.Warn("persistent events not saved", "subsystem", s.nqn, "err", err)
		}
		l.mu.Lock()
	}
	l.saving = false
}

// noteDeleted enters that a host deleted namespaces: as one event if it asked to delete all and all were.
func (r *Request) noteDeleted(gone []*Namespace, all bool) {
	if all && len(gone) > 0 && r.Cmd.NSID() == nvme.NSIDAll {
		gone = []*Namespace{nil}
	}
	for _, ns := range gone {
		r.noteNamespace(ns)
	}
}

// noteNamespace enters that a host created or deleted a namespace; nil means that it deleted all.
func (r *Request) noteNamespace(ns *Namespace) {
	c := r.engine.q.ctrl
	e := nvme.ChangeNamespaceEvent{CDW10: r.Cmd.CDW10(), NSID: nvme.NSIDAll}
	if ns != nil {
		n := ns.blocks.Load()
		e.NSZE, e.NCAP, e.FLBAS, e.NMIC, e.ANAGRPID, e.NSID = n, n, uint8(ns.format()), ns.nmic(), ns.anaGroup, ns.nsid
	}
	c.sub.noteEvent(nvme.PersistentNamespace, c, &e)
}

// noteFormat enters the end of a Format NVM, which had begun to erase or not.
func (s *Subsystem) noteFormat(c *controller, nsid uint32, st nvme.Status, begun bool) {
	e := nvme.FormatEndEvent{NSID: nsid, StatusPhase: uint16(st) << 1}
	if !st.OK() {
		e.Failed = nvme.FormatError
		if begun {
			e.Failed |= nvme.FormatIncomplete
		}
	}
	s.noteEvent(nvme.PersistentFormatEnd, c, &e)
}

// eventPage returns the log as a new reporting context of a controller sees it.
func (s *Subsystem) eventPage() []byte {
	l := &s.persistent
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.Generation++
	s.keepEvents()
	h := nvme.PersistentLogHeader{
		LID: nvme.LogPersistent, Events: uint32(len(l.kept.Events)), Length: nvme.PersistentHeaderSize,
		Revision: nvme.PersistentRevision, HeaderLength: nvme.PersistentHeaderRest, Timestamp: wallClock(),
		PowerOnHours: nvme.Uint128From(uint64(time.Duration(s.t.Now()) / time.Hour)), PowerCycles: l.kept.PowerCycles,
		Generation: l.kept.Generation,
	}
	nvme.PutPadded(h.SN[:], s.serial)
	nvme.PutPadded(h.MN[:], s.model)
	_ = nvme.PutText(h.SUBNQN[:], s.nqn) // its length was checked
	for _, kind := range supportedPersistent {
		h.SupportedEventsBits[kind/8] |= 1 << (kind % 8)
	}
	for i := range l.kept.Events {
		h.Length += uint64(l.kept.Events[i].Size())
	}
	b := h.AppendTo(make([]byte, 0, h.Length))
	for _, e := range slices.Backward(l.kept.Events) {
		b = e.AppendTo(b)
	}
	return b
}

// persistentAction is what Get Log Page for the log is to do.
func (r *Request) persistentAction() nvme.PersistentAction {
	return nvme.PersistentAction(r.Cmd.LogLSP() & 3)
}

// persistentLog executes Get Log Page for the log. It returns the log as it was when the controller's reporting context
// was made. An offset beyond that is the caller's to refuse; it makes no context.
func (c *controller) persistentLog(a nvme.PersistentAction, off uint64) ([]byte, nvme.Status, uint16) {
	port := c.portID()
	c.mu.Lock()
	defer c.mu.Unlock()
	page := c.events.context
	existed := page != nil
	switch {
	case a == nvme.PersistentRelease:
		c.events.context = nil
		return make([]byte, nvme.PersistentHeaderSize), 0, 0
	case a == nvme.PersistentRead && !existed, a == nvme.PersistentEstablish && existed:
		return nil, nvme.StatusCommandSequence, noLoc
	case !existed:
		page = c.sub.eventPage()
	}
	if off <= uint64(len(page)) {
		c.events.context = page
	}
	if a != nvme.PersistentHeader {
		return page, 0, 0
	}
	var h nvme.PersistentLogHeader
	_ = h.Parse(page) // it is ours
	if existed {
		h.ReportingContext = nvme.PersistentContextExisted | nvme.PersistentContextOfPort | uint32(port)
	}
	return h.AppendTo(nil), 0, 0
}
