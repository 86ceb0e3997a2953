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

// Pool makes the volumes of namespaces that hosts create. The engine calls one method at a time,
// and closes what it got from Create and Open itself.
type Pool interface {
	// Capacity is how much all volumes together may take, in bytes.
	Capacity() uint64
	// Create makes a volume that reads as zeroes. It is there after a power failure. An error
	// that is blockdev.ErrCapacity says that there is no room.
	Create(name string, size int64, blockSize int) (blockdev.Volume, error)
	// Open opens one that Create made.
	Open(name string, size int64, blockSize int) (blockdev.Volume, error)
	// Remove forgets one, which is closed. An error that is fs.ErrNotExist says that it isn't there.
	Remove(name string) error
}

// FirstCreatedNSID is the lowest NSID of namespaces that hosts create. Those of the operator lie
// below it in a subsystem that has a Pool, so that neither takes the other's.
const FirstCreatedNSID = MaxNSID/2 + 1

// managed is what a subsystem has whose namespaces hosts may create, delete, attach and detach.
type managed struct {
	pool Pool
	mu   sync.Mutex // one command at a time; taken before Subsystem.change
	// created are the namespaces that hosts made, by NSID. mu guards it.
	created []createdNamespace
	volumes map[uint32]blockdev.Volume // theirs, by NSID; likewise
	// pending are volumes that are being made or removed: no namespace has them. Likewise.
	pending []string
	going   uint64        // bytes of volumes whose namespaces are deleted, while they are used; likewise
	left    atomic.Uint64 // bytes of the pool that no namespace has
	// hosts says for each host which namespaces' attachment differs from what new controllers
	// get otherwise. It is changed with mu and Target.mu held.
	hosts map[string]*nsSet
}

// createdNamespace is a namespace that a host made, as it is stored.
type createdNamespace struct {
	NSID      uint32 `json:"nsid"`
	UUID      string `json:"uuid"` // and the name of its volume
	Size      int64  `json:"size"` // bytes
	BlockSize int    `json:"block_size"`
	Private   bool   `json:"private,omitempty"`
	ANAGroup  uint32 `json:"ana_group"`
}

// savedNamespaces is what is stored of a subsystem.
type savedNamespaces struct {
	Created []createdNamespace `json:"created"`
	// Hosts has for each host the created namespaces that it attached, and those of the operator
	// that it detached.
	Hosts map[string][]uint32 `json:"hosts"`
	// Pending are volumes that were being made or removed. The next run removes them, and none
	// that it doesn't know.
	Pending []string `json:"pending,omitempty"`
}

func cloneHosts(m map[string]*nsSet) map[string]*nsSet {
	out := map[string]*nsSet{}
	for host, s := range m {
		c := *s
		out[host] = &c
	}
	return out
}

// saveNamespaces saves what hosts made of the subsystem. Called with managed.mu held.
func (s *Subsystem) saveNamespaces(created []createdNamespace, hosts map[string]*nsSet) nvme.Status {
	saved := savedNamespaces{Created: created, Hosts: map[string][]uint32{}, Pending: s.managed.pending}
	for host, set := range hosts {
		for nsid := range uint32(MaxNSID) {
			if set.has(nsid + 1) {
				saved.Hosts[host] = append(saved.Hosts[host], nsid+1)
			}
		}
	}
	b, err := json.Marshal(saved)
	if err == nil && len(hosts) > maxManagedHosts {
		err = fmt.Errorf("%w: %d hosts have namespaces of their own", ErrLimit, maxManagedHosts)
	}
	if err == nil {
		err = s.save(s.stateName("namespaces"), append(b, '\n'))
	}
	if err != nil {
		s.t.log.Warn("namespaces not saved: the command fails", "subsystem", s.nqn, "err", err)
		return nvme.StatusInternalError
	}
	return nvme.StatusSuccess
}

// maxManagedHosts bounds the hosts that a subsystem remembers attachments of.
const maxManagedHosts = 1024

// loadNamespaces brings back the namespaces that hosts made.
func (s *Subsystem) loadNamespaces() error {
	m := s.managed
	b, err := s.t.store.Load(s.stateName("namespaces"))
	if err != nil {
		return err
	}
	var saved savedNamespaces
	if b != nil {
		if err := json.Unmarshal(b, &saved); err != nil {
			return stateError(s.stateName("namespaces"), err)
		}
	}
	for _, name := range saved.Pending {
		// Nothing but room is lost where that fails: it is no reason to keep hosts from the rest.
		if !s.removeLeft(name) {
			m.pending = append(m.pending, name)
		}
	}
	for host, nsids := range saved.Hosts {
		m.hosts[host] = new(nsSet)
		for _, nsid := range nsids {
			if nsid < 1 || nsid > MaxNSID {
				return stateError(s.stateName("namespaces"), fmt.Errorf("NSID %d", nsid))
			}
			m.hosts[host].set(nsid, true)
		}
	}
	for i := range saved.Created {
		if err := s.openCreated(&saved.Created[i]); err != nil {
			return fmt.Errorf("namespace %d, which a host created: %w", saved.Created[i].NSID, err)
		}
	}
	return nil
}

func (s *Subsystem) openCreated(n *createdNamespace) error {
	if n.NSID < FirstCreatedNSID {
		return stateError(s.stateName("namespaces"), fmt.Errorf("NSID below %d", FirstCreatedNSID))
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

// damaged is an error of a created namespace as that of what was saved, where that can't be: nobody has
// configured it.
func (s *Subsystem) damaged(err error) error {
	var wrong *wrongConfig
	switch {
	case errors.As(err, &wrong):
		err = errors.New(wrong.what)
	case errors.Is(err, ErrExists), errors.Is(err, ErrLimit):
	default:
		return err
	}
	return stateError(s.stateName("namespaces"), err)
}

// addCreated exports the volume of a created namespace. Called with managed.mu held, or before
// anybody else is there.
func (s *Subsystem) addCreated(n *createdNamespace, v blockdev.Volume) error {
	if s.ctx.Err() != nil {
		return ErrClosed
	}
	id, err := nvme.ParseHostID(n.UUID) // the form of a UUID
	if err != nil {
		return stateError(s.stateName("namespaces"), err)
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

// free is how much of the pool is left. Called with managed.mu held.
func (m *managed) free() uint64 {
	total := m.pool.Capacity()
	total -= min(total, m.going)
	for i := range m.created {
		total -= min(total, uint64(m.created[i].Size))
	}
	return total
}

// unallocated is how much of the pool is left; 0 without a pool.
func (s *Subsystem) unallocated() uint64 {
	if s.managed == nil {
		return 0
	}
	return s.managed.left.Load()
}

// freeNSID is the lowest NSID for a created namespace; 0 where all are taken. Called with
// managed.mu held.
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

// forget removes a namespace from what hosts attached. Called with managed.mu held.
func (m *managed) forget(nsid uint32) map[string]*nsSet {
	hosts := cloneHosts(m.hosts)
	for _, set := range hosts {
		set.set(nsid, false)
	}
	maps.DeleteFunc(hosts, func(_ string, set *nsSet) bool { return *set == (nsSet{}) })
	return hosts
}

// closeCreated closes the volumes of created namespaces, which nobody uses any more.
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
