package target

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// namespace finds an active namespace; nil if there is none.
func (s *Subsystem) namespace(nsid uint32) *Namespace {
	table := *s.namespaces.Load()
	if i := nsid - 1; i < uint32(len(table)) {
		return table[i]
	}
	return nil
}

// all returns the active namespaces in the order of their NSIDs.
func (s *Subsystem) all() []*Namespace {
	table := slices.Clone(*s.namespaces.Load())
	return slices.DeleteFunc(table, func(ns *Namespace) bool { return ns == nil })
}

// AddNamespace adds a namespace and tells the connected hosts. The error is ErrConfig, ErrExists, ErrLimit if every
// NSID is taken, ErrState, that of the Store, ErrRemoved if the subsystem was removed, or ErrClosed.
func (s *Subsystem) AddNamespace(c NamespaceConfig) (*Namespace, error) {
	if err := s.operators(&c); err != nil {
		return nil, err
	}
	ns, err := s.addNamespace(c)
	if err != nil {
		return nil, within(s.nqn, err)
	}
	return ns, nil
}

// CheckNamespaces is for callers that must know that AddNamespace will succeed before they do something that can't be
// undone. It returns the error that AddNamespace would for one of added, in this order, when those with the NSIDs
// removed are gone. What is stored of them is loaded now, and only anew if it is saved meanwhile, or by the next check.
func (s *Subsystem) CheckNamespaces(removed []uint32, added []NamespaceConfig) (err error) {
	s.change.Lock()
	defer s.change.Unlock()
	s.t.loaded.forgetOf(s)
	defer func() {
		if err != nil {
			s.t.loaded.forgetOf(s)
		}
	}()
	table := slices.Clone(*s.namespaces.Load())
	for _, nsid := range removed {
		if i := nsid - 1; i < uint32(len(table)) {
			table[i] = nil
		}
	}
	for i := range added {
		c := &added[i]
		if err := s.operators(c); err != nil {
			return err
		}
		err := c.Validate()
		if err == nil {
			_, table, err = s.ready(c, table, true)
		}
		if err != nil {
			return within(s.nqn, err)
		}
	}
	return nil
}

// operators refuses a namespace of the operator whose NSID is in the range of namespaces that hosts create.
func (s *Subsystem) operators(c *NamespaceConfig) error {
	if s.managed != nil && c.NSID >= FirstCreatedNSID {
		return configError("subsystem %s: namespace %d: NSIDs from %d on are for namespaces that hosts create",
			s.nqn, c.NSID, FirstCreatedNSID)
	}
	return nil
}

// addNamespace returns errors that don't name the subsystem; its callers add that.
func (s *Subsystem) addNamespace(c NamespaceConfig) (*Namespace, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s.t.buffers.add(c.Volume)
	s.change.Lock()
	ns, err := s.insert(&c)
	s.change.Unlock()
	if err != nil {
		s.t.buffers.remove(c.Volume)
		return nil, err
	}
	s.namespaceChanged(ns.nsid, nil)
	return ns, nil
}

// ready makes a namespace with what is stored of it, and the table that includes it and those of others. For a check,
// that is loaded, and kept for the next time. Called with change held.
func (s *Subsystem) ready(c *NamespaceConfig, others []*Namespace, check bool) (*Namespace, []*Namespace, error) {
	table := slices.Clone(others)
	nsid := c.NSID
	if nsid == 0 {
		i := slices.Index(table, nil)
		if i < 0 {
			i = len(table)
		}
		nsid = uint32(i) + 1
	}
	if nsid > MaxNSID || s.managed != nil && !c.created && nsid >= FirstCreatedNSID {
		return nil, nil, fmt.Errorf("%w: it has %d namespaces", ErrLimit, nsid-1)
	}
	for len(table) < int(nsid) {
		table = append(table, nil)
	}
	if table[nsid-1] != nil {
		return nil, nil, fmt.Errorf("namespace %d %w", nsid, ErrExists)
	}
	ns := newNamespace(s, nsid, c)
	if err := ns.distinct(others); err != nil {
		return nil, nil, err
	}
	err := ns.refuseFormer()
	if err == nil {
		err = errors.Join(ns.loadReservation(), ns.loadBad(), ns.loadProtection())
	}
	if !check {
		ns.forgetLoaded()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("namespace %d: %w", nsid, err)
	}
	table[nsid-1] = ns
	return ns, table, nil
}

// insert puts a namespace into the table. Called with change held.
func (s *Subsystem) insert(c *NamespaceConfig) (*Namespace, error) {
	ns, table, err := s.ready(c, *s.namespaces.Load(), false)
	if err != nil {
		return nil, err
	}
	ns.watchSize()
	if err := s.publish(ns, &table); err != nil {
		if ns.unwatch != nil {
			ns.unwatch()
		}
		return nil, err
	}
	return ns, nil
}

// distinct refuses a namespace that has an identifier of another one: hosts would take the two for the same.
func (ns *Namespace) distinct(others []*Namespace) error {
	for _, other := range others {
		var what string
		switch {
		case other == nil:
		case other.uuid == ns.uuid:
			what = "UUID " + nvme.HostID(ns.uuid).String()
		case other.nguid == ns.nguid && ns.nguid != [16]byte{}:
			what = fmt.Sprintf("NGUID %x", ns.nguid)
		case other.eui64 == ns.eui64 && ns.eui64 != [8]byte{}:
			what = fmt.Sprintf("EUI64 %x", ns.eui64)
		}
		if what != "" {
			return fmt.Errorf("namespace %d: %s %w, as that of namespace %d: give it another, or none", ns.nsid, what, ErrExists, other.nsid)
		}
	}
	return nil
}

// publish makes a table with a new namespace the subsystem's, unless the target is closed or the subsystem removed, as
// nothing would ever remove the namespace again. Called with change held.
func (s *Subsystem) publish(ns *Namespace, table *[]*Namespace) error {
	s.t.mu.Lock() // the states of its group, and of sanitize operations, may change meanwhile
	defer s.t.mu.Unlock()
	switch {
	case s.t.closed:
		return ErrClosed
	case s.removed:
		return ErrRemoved
	}
	ns.setState(nsBarred, s.t.barredGroups()[ns.anaGroup])
	ns.setState(nsSanitize, !s.sanitizing().OK())
	s.t.offerNamespace(ns)
	s.namespaces.Store(table)
	s.t.countANA(ns)
	return nil
}

// RemoveNamespace removes a namespace, tells the connected hosts, and returns when no request uses its volume any more.
// The error is ErrNotFound.
func (s *Subsystem) RemoveNamespace(nsid uint32) error {
	wait, err := s.TakeNamespace(nsid)
	if err == nil {
		wait()
	}
	return err
}

// TakeNamespace is RemoveNamespace for callers that don't want to wait at once: if a volume hangs, the wait takes as
// long as the volume does. The caller must call the function that it returns, which waits.
func (s *Subsystem) TakeNamespace(nsid uint32) (wait func(), err error) {
	ns, err := s.takeNamespace(nsid, nil)
	if err != nil {
		return nil, err
	}
	return ns.remove, nil
}

// takeNamespace begins to remove a namespace, which is gone for hosts from then on. It doesn't tell the host of the
// controller by, which has asked for it (NVMe base, "Namespace Deletion Asynchronous Event Reporting"). remove must
// follow.
func (s *Subsystem) takeNamespace(nsid uint32, by *controller) (*Namespace, error) {
	s.change.Lock()
	ns := s.namespace(nsid)
	if ns == nil {
		s.change.Unlock()
		return nil, fmt.Errorf("target: subsystem %s: namespace %d %w", s.nqn, nsid, ErrNotFound)
	}
	table := slices.Clone(*s.namespaces.Load())
	table[nsid-1] = nil
	s.t.mu.Lock()
	had := s.t.having(ns, by) // later, the NSID may be that of a namespace that isn't attached to all of them
	s.departed.leave(ns, func() { s.namespaces.Store(&table) })
	s.t.countANA(ns)
	s.t.mu.Unlock()
	s.forgetFeatures(nsid) // before a new one is given its identifier
	s.change.Unlock()
	ns.refuseAll()
	for _, c := range had {
		c.namespaceChanged(nsid)
	}
	return ns, nil
}

// namespaceChanged notes in every controller except one that a namespace came or changed its attributes.
func (s *Subsystem) namespaceChanged(nsid uint32, except *controller) {
	for _, c := range s.t.controllersOf(s) {
		if c != except && c.has(nsid) {
			c.namespaceChanged(nsid)
		}
	}
}

// nn is NN of Identify Controller: the largest NSID there can be.
func (s *Subsystem) nn() uint32 {
	if s.discovery {
		return 0
	}
	return MaxNSID
}
