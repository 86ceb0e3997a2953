package target

import (
	"errors"
	"io/fs"
	"math"
	"math/bits"
	"slices"

	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// createdBlocks are the block sizes that hosts may create namespaces with, by LBA format.
var createdBlocks = []int{4096, 512}

// formats returns the LBA formats that Identify reports for a namespace. In a subsystem whose hosts create namespaces
// they are the same for all namespaces that have one of createdBlocks.
func (ns *Namespace) formats() []int {
	if ns.sub.managed != nil && slices.Contains(createdBlocks, ns.info.BlockSize) {
		return createdBlocks
	}
	return []int{ns.info.BlockSize}
}

func (ns *Namespace) format() int { return slices.Index(ns.formats(), ns.info.BlockSize) }

// namespaceManagement executes Namespace Management.
func (r *Request) namespaceManagement() {
	s := r.engine.q.ctrl.sub
	switch a := r.Cmd.NSAction(); {
	case s.managed == nil:
		r.fail(nvme.StatusInvalidOpcode, offOpcode)
	case a > nvme.NSDelete:
		r.fail(nvme.StatusInvalidField, nvme.NSManagementOffSEL)
	case a == nvme.NSDelete:
		if r.mayReach() {
			s.work.Go(r.deleteNamespaces)
		}
	case r.Cmd.NSID() != nvme.NSIDNone:
		r.fail(nvme.StatusInvalidField, offNSID)
	case r.Cmd.IdentifyCSI() != nvme.CSINVM:
		r.fail(nvme.StatusCommandSetNotSupported, nvme.NSManagementOffCSI)
	case r.mapSGL(nvme.PageSize):
		r.withHostData(nvme.PageSize, func(r *Request) { s.work.Go(r.createNamespace) })
	}
}

// createNamespace continues with the host's description of the namespace.
func (r *Request) createNamespace() {
	s := r.engine.q.ctrl.sub
	var page [nvme.PageSize]byte
	r.hostData(page[:], 0)
	var spec nvme.NamespaceSpec
	_ = spec.Parse(page[:]) // there are enough bytes
	s.managed.mu.Lock()
	n, st := s.plan(&spec)
	if st.OK() {
		st = s.create(n)
	}
	if st.OK() {
		r.noteNamespace(s.namespace(n.NSID))
	}
	s.managed.mu.Unlock()
	if !st.OK() {
		if st == nvme.StatusInsufficientCapacity {
			r.engine.detail = bytesOf(&spec)
		}
		r.fail(st, noLoc)
		return
	}
	s.t.log.Info("host created a namespace", "subsystem", s.nqn, "nsid", n.NSID, "size", n.Size, "block", n.BlockSize,
		"host", r.engine.q.ctrl.hostNQN)
	r.CQE.SetDW0(n.NSID)
	r.respond(nvme.StatusSuccess)
}

// bytesOf returns how many bytes a namespace takes, or as many as can be said.
func bytesOf(spec *nvme.NamespaceSpec) uint64 {
	if beyond, n := bits.Mul64(spec.NSZE, uint64(createdBlocks[spec.Format()])); beyond == 0 {
		return n
	}
	return math.MaxUint64
}

// plan returns what a namespace that a host wants will be, or why it can't exist. Called with managed.mu held.
func (s *Subsystem) plan(spec *nvme.NamespaceSpec) (*createdNamespace, nvme.Status) {
	m := s.managed
	format := spec.Format()
	switch {
	case format >= len(createdBlocks) || spec.DPS != 0:
		return nil, nvme.StatusInvalidFormat
	case spec.NMIC&^nvme.NMICShared != 0 || spec.NVMSETID != 0 || spec.ENDGID != 0 || spec.NSZE == 0:
		return nil, nvme.StatusInvalidField
	case spec.ANAGRPID > MaxANAGroup:
		return nil, nvme.StatusANAGroupInvalid
	case spec.NCAP != spec.NSZE:
		return nil, nvme.StatusThinNotSupported
	}
	block := createdBlocks[format]
	nsid := m.freeNSID()
	switch {
	case spec.NSZE > m.free()/uint64(block):
		return nil, nvme.StatusInsufficientCapacity
	case nsid == 0:
		return nil, nvme.StatusNSIDUnavailable
	}
	return &createdNamespace{
		NSID: nsid, UUID: uuid.NewString(), Size: int64(spec.NSZE) * int64(block), BlockSize: block,
		Private: spec.NMIC&nvme.NMICShared == 0, ANAGroup: max(spec.ANAGRPID, 1),
	}, nvme.StatusSuccess
}

// create makes a namespace: its name is saved, its volume is made, and then it is saved that the namespace exists. A
// crash leaves either the name of a volume that the next run removes, or the complete namespace. Called with managed.mu
// held.
func (s *Subsystem) create(n *createdNamespace) nvme.Status {
	m := s.managed
	m.pending = append(m.pending, n.UUID)
	if st := s.saveNamespaces(m.created, m.hosts); !st.OK() {
		m.pending = m.pending[:len(m.pending)-1]
		return st
	}
	v, err := m.pool.Create(n.UUID, n.Size, n.BlockSize)
	if err != nil {
		s.t.log.Error("a host's namespace can't be created", "subsystem", s.nqn, "err", err)
		s.discard(n.UUID)
		if errors.Is(err, blockdev.ErrCapacity) {
			return nvme.StatusInsufficientCapacity
		}
		return nvme.StatusInternalError
	}
	pending := m.pending
	m.pending = slices.Clone(pending[:len(pending)-1])
	st := s.saveNamespaces(append(slices.Clone(m.created), *n), m.hosts)
	if st.OK() {
		if err = s.addCreated(n, v); err == nil {
			return st
		}
		st = nvme.StatusInternalError
	}
	m.pending = pending
	if err := errors.Join(err, v.Close()); err != nil {
		s.t.log.Error("a host's namespace can't be created", "subsystem", s.nqn, "err", err)
	}
	if s.saveNamespaces(m.created, m.hosts).OK() {
		s.discard(n.UUID)
	}
	return st
}

// discard removes a pending volume. If it can't be removed it stays pending. Called with managed.mu held.
func (s *Subsystem) discard(name string) {
	m := s.managed
	if !s.removeLeft(name) {
		return
	}
	m.pending = slices.DeleteFunc(slices.Clone(m.pending), func(p string) bool { return p == name })
	_ = s.saveNamespaces(m.created, m.hosts) // if that fails the next run finds nothing to remove
}

// removeLeft removes a volume that no namespace has, with what was saved of its namespace, and reports whether it is gone.
func (s *Subsystem) removeLeft(name string) bool {
	err := s.managed.pool.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, s.forgetState(name)); err != nil {
		s.t.log.Error("a volume that no namespace has can't be removed; the next start tries again", "subsystem", s.nqn, "volume", name, "err", err)
		return false
	}
	return true
}

// mayReach reports whether the controller can reach the namespaces to be deleted, considering only those attached to
// it: its relationship to others has no ANA state. If it can't, mayReach responds.
func (r *Request) mayReach() bool {
	c, nsid := r.engine.q.ctrl, r.Cmd.NSID()
	for _, ns := range c.all() {
		if nsid != nvme.NSIDAll && nsid != ns.nsid {
			continue
		}
		if st := c.access(ns); !st.OK() {
			r.respond(st)
			return false
		}
	}
	return true
}

// deleteNamespaces deletes one namespace or all.
func (r *Request) deleteNamespaces() {
	s := r.engine.q.ctrl.sub
	s.managed.mu.Lock()
	all := []*Namespace{s.namespace(r.Cmd.NSID())}
	if r.Cmd.NSID() == nvme.NSIDAll {
		all = s.all()
	}
	st, left := r.mayDelete(all), all
	var gone []*deletedNamespace
	for st.OK() && len(left) > 0 {
		var d *deletedNamespace
		if d, st = s.takeAway(left[0], r.engine.q.ctrl); st.OK() {
			gone, left = append(gone, d), left[1:]
		}
	}
	r.noteDeleted(all[:len(all)-len(left)], len(left) == 0)
	s.managed.mu.Unlock()
	for _, d := range gone {
		s.delete(d)
	}
	if st.Code() == nvme.StatusInvalidNamespace {
		r.fail(st, offNSID)
		return
	}
	if !st.OK() {
		r.fail(st, noLoc)
		return
	}
	r.respond(nvme.StatusSuccess)
}

// mayDelete returns why namespaces can't be deleted, if so: those of the operator can't.
func (r *Request) mayDelete(all []*Namespace) nvme.Status {
	for _, ns := range all {
		switch {
		case ns == nil:
			return nvme.StatusInvalidNamespace
		case !ns.created:
			return nvme.StatusOperationDenied
		case ns.protected.Load():
			return nvme.StatusNamespaceWriteProtected
		}
		if st := r.mayChange(ns); !st.OK() {
			return st
		}
	}
	return nvme.StatusSuccess
}

// deletedNamespace is a namespace that a host deleted and whose volume still exists.
type deletedNamespace struct {
	ns   *Namespace
	name string // of the volume
	size uint64 // likewise
}

// takeAway takes a created namespace away from the hosts, as the host of by asked: first from what is saved, so that a
// crash leaves the name of a volume that the next run removes. Called with managed.mu held; delete must follow.
func (s *Subsystem) takeAway(ns *Namespace, by *controller) (*deletedNamespace, nvme.Status) {
	m := s.managed
	i := slices.IndexFunc(m.created, func(n createdNamespace) bool { return n.NSID == ns.nsid })
	name, size := m.created[i].UUID, uint64(m.created[i].Size)
	left := slices.Delete(slices.Clone(m.created), i, i+1)
	hosts := m.forget(ns)
	m.pending = append(m.pending, name)
	if st := s.saveNamespaces(left, hosts); !st.OK() {
		m.pending = m.pending[:len(m.pending)-1]
		return nil, st
	}
	s.t.mu.Lock()
	m.hosts = hosts
	s.t.mu.Unlock()
	m.created = left
	m.going += size
	delete(m.volumes, ns.nsid)
	_, _ = s.takeNamespace(ns.nsid, by) // it fails if the subsystem is being removed, and has no namespaces any more
	return &deletedNamespace{ns, name, size}, nvme.StatusSuccess
}

// delete removes the volume of a namespace that was taken away, when nothing uses it any more. That may take long, and
// other namespaces can be managed meanwhile.
func (s *Subsystem) delete(d *deletedNamespace) {
	ns, m := d.ns, s.managed
	ns.remove()
	if err := ns.volume.Close(); err != nil {
		s.t.log.Error("the volume of a namespace that a host deleted can't be closed", "subsystem", s.nqn, "nsid", ns.nsid, "err", err)
	}
	m.mu.Lock()
	s.discard(d.name)
	m.going -= d.size
	m.left.Store(m.free())
	m.mu.Unlock()
	s.t.log.Info("host deleted a namespace", "subsystem", s.nqn, "nsid", ns.nsid)
}

// forgetState deletes what was saved of a namespace that doesn't come back. Its volume was named by its UUID.
func (s *Subsystem) forgetState(name string) error {
	id, err := nvme.ParseHostID(name)
	if err != nil {
		return err
	}
	for _, what := range namespaceStates {
		err = errors.Join(err, s.unsave(namespaceState(what, id)))
	}
	return err
}

// commonFormats returns Identify Namespace for all namespaces: what hosts may create.
func (c *controller) commonFormats() []byte {
	p := nvme.IdentifyNamespace{NLBAF: uint8(len(createdBlocks) - 1), NMIC: nvme.NMICShared, NSFEAT: nvme.NSFEATOptPerf,
		DLFEAT: nvme.DLFEATWriteZeroes}
	for i, b := range createdBlocks {
		p.LBAF[i].LBADS = blockShift(b)
	}
	return p.AppendTo(nil)
}
