package target

import (
	"maps"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Which namespaces a controller has (NVMe base, "Namespace Attachment"). The operator's namespaces are attached to
// every controller, those that hosts create to none, until a host attaches or detaches them for a controller.
// Controllers are made on demand, so what was last set for one of a host's controllers applies to the next one that
// this host makes, also after a restart. It belongs to the namespace, which its UUID identifies: another volume that the
// operator exports under the NSID is attached, as a new namespace.

// nsSet is a set of namespaces; the zero value is empty.
type nsSet [MaxNSID / 64]uint64

func (s *nsSet) has(nsid uint32) bool {
	i := nsid - 1
	return i < MaxNSID && s[i/64]>>(i%64)&1 != 0
}

func (s *nsSet) set(nsid uint32, in bool) {
	i := nsid - 1
	if in {
		s[i/64] |= 1 << (i % 64)
	} else {
		s[i/64] &^= 1 << (i % 64)
	}
}

// namespace finds a namespace that is attached to the controller; nil if there is none.
func (c *controller) namespace(nsid uint32) *Namespace {
	if !c.has(nsid) {
		return nil
	}
	return c.sub.namespace(nsid)
}

// has reports whether a namespace is attached to the controller, or was when the namespace was removed.
func (c *controller) has(nsid uint32) bool {
	d := c.detached.Load()
	return d == nil || !d.has(nsid)
}

// all returns the attached namespaces in the order of their NSIDs.
func (c *controller) all() []*Namespace {
	return slices.DeleteFunc(c.sub.all(), func(ns *Namespace) bool { return !c.has(ns.nsid) })
}

// detach sets whether a namespace is detached. Called with Target.mu held.
func (c *controller) detach(nsid uint32, off bool) {
	old := c.detached.Load()
	if (old != nil && old.has(nsid)) == off {
		return
	}
	next := new(nsSet)
	if old != nil {
		*next = *old
	}
	next.set(nsid, off)
	if *next == (nsSet{}) {
		next = nil
	}
	c.detached.Store(next)
}

// giveNamespaces attaches to a new controller the namespaces that its host had. Called with Target.mu held.
func (t *Target) giveNamespaces(c *controller) {
	if c.sub.managed == nil {
		return
	}
	for _, ns := range c.sub.all() {
		c.detach(ns.nsid, !t.wants(c, ns))
	}
}

// wants reports whether a namespace is to be attached to a new controller, or a new namespace to a controller. Called
// with Target.mu held.
func (t *Target) wants(c *controller, ns *Namespace) bool {
	m := c.sub.managed
	if ns.created == m.hosts[c.hostNQN][ns.uuid] {
		return !ns.private || ns != m.attaching && len(t.having(ns, c)) == 0
	}
	return false
}

// having returns the controllers, other than except, that have a namespace. Called with mu held.
func (t *Target) having(ns *Namespace, except *controller) (all []*controller) {
	for _, c := range t.controllers {
		if c != except && c.sub == ns.sub && c.has(ns.nsid) {
			all = append(all, c)
		}
	}
	return all
}

// offerNamespace attaches a new namespace to the controllers that are to have it. Called with Target.mu held.
func (t *Target) offerNamespace(ns *Namespace) {
	if ns.sub.managed == nil {
		return
	}
	for _, c := range t.controllers {
		if c.sub == ns.sub {
			c.detach(ns.nsid, !t.wants(c, ns))
		}
	}
}

// namespaceAttachment executes Namespace Attachment.
func (r *Request) namespaceAttachment() {
	c := r.engine.q.ctrl
	switch {
	case c.sub.managed == nil:
		r.fail(nvme.StatusInvalidOpcode, offOpcode)
	case r.Cmd.NSAction() > nvme.NSDetach:
		r.fail(nvme.StatusInvalidField, nvme.NSManagementOffSEL)
	case c.sub.namespace(r.Cmd.NSID()) == nil:
		r.failNSID()
	case r.mapSGL(nvme.PageSize):
		r.withHostData(nvme.PageSize, func(r *Request) {
			c.sub.work.Go(r.changeAttachment)
		})
	}
}

// changeAttachment continues with the list of controllers. Either all of them change, or none.
func (r *Request) changeAttachment() {
	s := r.engine.q.ctrl.sub
	var page [nvme.PageSize]byte
	r.hostData(page[:], 0)
	list, err := nvme.ParseControllerList(page[:])
	if err != nil || len(list) == 0 {
		r.fail(nvme.StatusInvalidControllerList, noLoc)
		return
	}
	s.managed.mu.Lock()
	ns := s.namespace(r.Cmd.NSID())
	if ns == nil {
		s.managed.mu.Unlock()
		r.fail(nvme.StatusInvalidNamespace, offNSID)
		return
	}
	detach := r.Cmd.NSAction() == nvme.NSDetach
	all, st, wrong := s.attachable(ns, list, detach)
	if st.OK() {
		st = r.mayChange(ns)
	}
	if st.OK() {
		st = s.attach(ns, all, detach)
	}
	s.endAttach()
	s.managed.mu.Unlock()
	if !st.OK() {
		r.engine.detail = wrong
		r.fail(st, noLoc)
		return
	}
	for _, c := range all {
		c.namespaceChanged(ns.nsid)
	}
	r.respond(nvme.StatusSuccess)
}

// attachable finds the controllers of a list, or returns why a namespace can't be attached to them, or detached, and the
// offset of the first entry that is to blame. Called with managed.mu held; endAttach must follow.
func (s *Subsystem) attachable(ns *Namespace, list nvme.ControllerList, detach bool) (all []*controller, st nvme.Status, wrong uint64) {
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, id := range list {
		c := t.controllers[id]
		if c == nil || c.sub != s || i > 0 && id <= list[i-1] {
			return nil, nvme.StatusInvalidControllerList, nvme.ControllerListOff(i)
		}
		all = append(all, c)
	}
	for i, c := range all {
		switch {
		case detach && !c.has(ns.nsid):
			st = nvme.StatusNamespaceNotAttached
		case detach:
		case c.has(ns.nsid):
			st = nvme.StatusNamespaceAlreadyAttached
		case ns.private && (i > 0 || len(t.having(ns, nil)) > 0):
			st = nvme.StatusNamespacePrivate
		case c.anaState(ns.anaGroup) == nvme.ANAPersistentLoss:
			st = nvme.StatusANAAttachFailed
		}
		if !st.OK() {
			return nil, st, nvme.ControllerListOff(i)
		}
	}
	if !detach {
		s.managed.attaching = ns // until it is, no controller that is new meanwhile gets it if it is private
	}
	return all, nvme.StatusSuccess, 0
}

// endAttach ends what attachable began. Called with managed.mu held.
func (s *Subsystem) endAttach() {
	s.t.mu.Lock()
	s.managed.attaching = nil
	s.t.mu.Unlock()
}

// attach attaches a namespace to controllers, or detaches it, after that is saved. Called with managed.mu held.
func (s *Subsystem) attach(ns *Namespace, all []*controller, detach bool) nvme.Status {
	hosts := cloneHosts(s.managed.hosts)
	for _, c := range all {
		differs := hosts[c.hostNQN]
		if differs == nil {
			differs = uuidSet{}
			hosts[c.hostNQN] = differs
		}
		if detach != ns.created {
			differs[ns.uuid] = true
			s.bound(differs)
		} else {
			delete(differs, ns.uuid)
		}
		if len(differs) == 0 {
			delete(hosts, c.hostNQN)
		}
	}
	if st := s.saveNamespaces(s.managed.created, hosts); !st.OK() {
		return st
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.managed.hosts = hosts
	if s.namespace(ns.nsid) != ns { // the operator has removed it meanwhile, and may have put another in its place
		return nvme.StatusSuccess
	}
	for _, c := range all {
		c.detach(ns.nsid, detach)
		c.countANA(ns.anaGroup)
	}
	return nvme.StatusSuccess
}

// bound keeps what is remembered of a host from growing as the operator's volumes come and go: if it is more than there
// can be namespaces, those that don't exist now are forgotten.
func (s *Subsystem) bound(differs uuidSet) {
	if len(differs) <= MaxNSID {
		return
	}
	now := uuidSet{}
	for _, ns := range s.all() {
		now[ns.uuid] = true
	}
	maps.DeleteFunc(differs, func(id [16]byte, _ bool) bool { return !now[id] })
}
