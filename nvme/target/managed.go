package target

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Pool makes the volumes of namespaces that hosts create. The engine calls one method at a time, and closes the volumes
// that it gets from Create and Open.
type Pool interface {
	// Capacity returns how much all volumes together may take, in bytes.
	Capacity() uint64
	// Create makes a volume that reads as zeroes. It survives a power failure. The error is blockdev.ErrCapacity if
	// there is no room.
	Create(name string, size int64, blockSize int) (blockdev.Volume, error)
	// Open opens a volume that Create made.
	Open(name string, size int64, blockSize int) (blockdev.Volume, error)
	// Remove deletes a volume, which is closed. The error is fs.ErrNotExist if there is none.
	Remove(name string) error
}

// FirstCreatedNSID is the lowest NSID of namespaces that hosts create. In a subsystem that has a Pool the operator's
// namespaces are below it, so that neither takes the other's NSIDs.
const FirstCreatedNSID = MaxNSID/2 + 1

// managed is the state of a subsystem whose namespaces hosts may create, delete, attach and detach.
type managed struct {
	pool Pool
	mu   sync.Mutex // one command at a time; taken before Subsystem.change
	// created are the namespaces that hosts created, by NSID. Guarded by mu.
	created []createdNamespace
	volumes map[uint32]blockdev.Volume // of created, by NSID; guarded by mu
	// pending are volumes that are being made or removed: no namespace has them. Guarded by mu.
	pending []string
	going   uint64        // bytes of volumes whose namespaces are deleted but which are still used; guarded by mu
	left    atomic.Uint64 // bytes of the pool that no namespace has
	// hosts holds for each host the namespaces whose attachment differs from what new controllers get by default. It is
	// changed with mu and Target.mu held.
	hosts map[string]uuidSet
	// attaching is a namespace whose attachment is being saved; nil if there is none. It is changed like hosts.
	attaching *Namespace
}

// uuidSet is a set of namespaces by UUID: an NSID may later be that of another namespace.
type uuidSet map[[16]byte]bool

// createdNamespace is a namespace that a host created, as it is stored.
type createdNamespace struct {
	NSID      uint32 `json:"nsid"`
	UUID      string `json:"uuid"` // also the name of its volume
	Size      int64  `json:"size"` // bytes
	BlockSize int    `json:"block_size"`
	Private   bool   `json:"private,omitempty"`
	ANAGroup  uint32 `json:"ana_group"`
}

// savedNamespaces is what is stored of a subsystem.
type savedNamespaces struct {
	Created []createdNamespace `json:"created"`
	// Attachments has for each host the UUIDs of the created namespaces that it attached, and of the operator's that it
	// detached.
	Attachments map[string][]string `json:"attachments"`
	// Hosts is what earlier versions stored in place of Attachments.
	Hosts json.RawMessage `json:"hosts,omitempty"`
	// Pending are volumes that were being made or removed. The next run removes them, and no volume that isn't listed.
	Pending []string `json:"pending,omitempty"`
}

func cloneHosts(m map[string]uuidSet) map[string]uuidSet {
	out := map[string]uuidSet{}
	for host, s := range m {
		out[host] = maps.Clone(s)
	}
	return out
}

// saveNamespaces saves what hosts changed in the subsystem. Called with managed.mu held.
func (s *Subsystem) saveNamespaces(created []createdNamespace, hosts map[string]uuidSet) nvme.Status {
	saved := savedNamespaces{Created: created, Attachments: map[string][]string{}, Pending: s.managed.pending}
	for host, set := range hosts {
		for id := range set {
			saved.Attachments[host] = append(saved.Attachments[host], nvme.HostID(id).String())
		}
		slices.Sort(saved.Attachments[host])
	}
	var err error
	if len(hosts) > maxManagedHosts {
		err = fmt.Errorf("%w: %d hosts have namespaces of their own", ErrLimit, maxManagedHosts)
	} else {
		err = s.saveState(stateNamespaces, &saved)
	}
	if err != nil {
		s.t.log.Warn("namespaces not saved: the command fails", "subsystem", s.nqn, "err", err)
		return nvme.StatusInternalError
	}
	return nvme.StatusSuccess
}

// maxManagedHosts bounds the hosts whose attachments a subsystem remembers.
const maxManagedHosts = 1024

// loadNamespaces loads the namespaces that hosts created, and what they attached and detached. The operator's namespaces
// are there already.
func (s *Subsystem) loadNamespaces() error {
	m := s.managed
	var saved savedNamespaces
	if err := s.loadState(stateNamespaces, &saved); err != nil {
		return err
	}
	if saved.Hosts != nil {
		return s.stateError(stateNamespaces, errors.New(`it has "hosts", of an earlier version: remove them, and have hosts attach and detach again`))
	}
	for _, name := range saved.Pending {
		// If that fails, only space is lost: no reason to keep hosts from the rest.
		if !s.removeLeft(name) {
			m.pending = append(m.pending, name)
		}
	}
	for i := range saved.Created {
		if err := s.openCreated(&saved.Created[i]); err != nil {
			return fmt.Errorf("namespace %d, which a host created: %w", saved.Created[i].NSID, err)
		}
	}
	return s.loadAttachments(&saved)
}

// loadAttachments loads what hosts attached and detached.
func (s *Subsystem) loadAttachments(saved *savedNamespaces) error {
	m := s.managed
	for host, ids := range saved.Attachments {
		for _, text := range ids {
			id, err := nvme.ParseHostID(text) // the form of a UUID
			if err != nil {
				return s.stateError(stateNamespaces, fmt.Errorf("UUID %q", text))
			}
			m.differ(host, id)
		}
	}
	return nil
}

// differ notes that the attachment of a namespace differs from the default for a host.
func (m *managed) differ(host string, id [16]byte) {
	if m.hosts[host] == nil {
		m.hosts[host] = uuidSet{}
	}
	m.hosts[host][id] = true
}

func (s *Subsystem) openCreated(n *createdNamespace) error {
	if n.NSID < FirstCreatedNSID {
		return s.stateError(stateNamespaces, fmt.Errorf("NSID below %d", FirstCreatedNSID))
	}
	v, err := s.managed.pool.Open(n.UUID, n.Size, n.BlockSize)
	if err != nil {
		return err
	}
	if err := s.addCreated(n, v); err != nil {
		return errors.Join(s.damaged(err), v.Close())
	}
	return nil
}

// damaged turns an error about a created namespace's configuration, which nobody wrote, into one about what was saved.
func (s *Subsystem) damaged(err error) error {
	var wrong *wrongConfig
	switch {
	case errors.As(err, &wrong):
		err = errors.New(wrong.what)
	case errors.Is(err, ErrExists), errors.Is(err, ErrLimit):
	default:
		return err
	}
	return s.stateError(stateNamespaces, err)
}

// addCreated adds a created namespace with its volume. Called with managed.mu held, or before anything else can run.
func (s *Subsystem) addCreated(n *createdNamespace, v blockdev.Volume) error {
	if s.ctx.Err() != nil {
		return ErrClosed
	}
	id, err := nvme.ParseHostID(n.UUID) // the form of a UUID
	if err != nil {
		return s.stateError(stateNamespaces, err)
	}
	c := NamespaceConfig{NSID: n.NSID, Volume: v, UUID: id, ANAGroup: n.ANAGroup, created: true, private: n.Private}
	if _, err := s.addNamespace(c); err != nil {
		return err
	}
	i, _ := slices.BinarySearchFunc(s.managed.created, n.NSID, func(n createdNamespace, nsid uint32) int { return int(n.NSID) - int(nsid) })
	s.managed.created = slices.Insert(slices.Clone(s.managed.created), i, *n)
	s.managed.volumes[n.NSID] = v
	s.managed.left.Store(s.managed.free())
	return nil
}

// free returns how much of the pool is left, in bytes. Called with managed.mu held.
func (m *managed) free() uint64 {
	total := m.pool.Capacity()
	total -= min(total, m.going)
	for i := range m.created {
		total -= min(total, uint64(m.created[i].Size))
	}
	return total
}

// unallocated returns how much of the pool is left, in bytes; 0 without a pool.
func (s *Subsystem) unallocated() uint64 {
	if s.managed == nil {
		return 0
	}
	return s.managed.left.Load()
}

// freeNSID returns the lowest free NSID for a created namespace; 0 if all are taken. Called with managed.mu held.
func (m *managed) freeNSID() uint32 {
	next := uint32(FirstCreatedNSID)
	for i := range m.created {
		if m.created[i].NSID == next {
			next++
		}
	}
	if next > MaxNSID {
		return 0
	}
	return next
}

// forget returns the hosts' attachments without those of a namespace. Called with managed.mu held.
func (m *managed) forget(ns *Namespace) map[string]uuidSet {
	hosts := cloneHosts(m.hosts)
	for _, set := range hosts {
		delete(set, ns.uuid)
	}
	maps.DeleteFunc(hosts, func(_ string, set uuidSet) bool { return len(set) == 0 })
	return hosts
}

// closeCreated closes the volumes of created namespaces, which nothing uses any more.
func (s *Subsystem) closeCreated() error {
	if s.managed == nil {
		return nil
	}
	s.managed.mu.Lock()
	defer s.managed.mu.Unlock()
	var errs []error
	for _, v := range s.managed.volumes {
		errs = append(errs, v.Close())
	}
	s.managed.volumes = nil
	return errors.Join(errs...)
}
