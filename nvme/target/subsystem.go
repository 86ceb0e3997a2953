package target

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Subsystem is an NVM subsystem, or the discovery subsystem.
type Subsystem struct {
	t         *Target
	nqn       string
	serial    string
	model     string
	firmware  string
	discovery bool
	maxCtrls  int
	access    atomic.Pointer[access]

	// namespaces is indexed by NSID less one, with nil where there is none; it is replaced as a whole.
	namespaces atomic.Pointer[[]*Namespace]
	change     sync.Mutex // one change of namespaces at a time
	departed   departed

	managed    *managed // nil if hosts can't create namespaces
	sanitize   sanitizer
	persistent persistentLog

	// Work that takes time and belongs to no queue runs in work, and ends early with ctx.
	work   tasks
	ctx    context.Context
	cancel context.CancelFunc

	stored    sync.RWMutex // held by each save
	storedAll bool         // nothing is saved any more

	// Under Target.mu.
	controllers int
	removed     bool
	known       map[hostKey]bool // hosts that have connected
}

// DefaultModel is the model number of a subsystem that is given none.
const DefaultModel = "NVMe Anywhere target"

const defaultFirmware = "1.0"

// DeriveSerial returns the serial number of a subsystem that is given none.
func DeriveSerial(nqn string) string {
	sum := sha256.Sum256([]byte("serial\x00" + nqn))
	return hex.EncodeToString(sum[:10])
}

func newSubsystem(t *Target, c *SubsystemConfig) *Subsystem {
	s := &Subsystem{
		t: t, nqn: c.NQN,
		serial: cmp.Or(c.Serial, DeriveSerial(c.NQN)), model: cmp.Or(c.Model, DefaultModel), firmware: cmp.Or(c.Firmware, defaultFirmware),
		maxCtrls: c.MaxControllers,
	}
	s.access.Store(newAccess(c.AllowAnyHost, c.Hosts))
	s.namespaces.Store(new([]*Namespace))
	s.sanitize.now.Store(new(sanitizeState))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if c.Pool != nil {
		s.managed = &managed{pool: c.Pool, hosts: map[string]uuidSet{}, volumes: map[uint32]blockdev.Volume{}}
		s.managed.left.Store(c.Pool.Capacity())
	}
	return s
}

// open loads what is stored of the subsystem, and adds its namespaces.
func (s *Subsystem) open(namespaces []NamespaceConfig) error {
	if s.managed != nil && s.t.store == nil {
		return configError("subsystem %s: hosts can't create namespaces without a Store", s.nqn)
	}
	if err := s.loadEvents(); err != nil {
		return within(s.nqn, err)
	}
	for i := range namespaces {
		if _, err := s.AddNamespace(namespaces[i]); err != nil {
			return err
		}
	}
	if s.managed != nil {
		if err := s.loadNamespaces(); err != nil {
			return within(s.nqn, err)
		}
	}
	if err := s.loadSanitize(); err != nil {
		return within(s.nqn, err)
	}
	return nil
}

// close ends the background work, lets go of the volumes and closes those that belong to the subsystem. Nothing uses it
// any more.
func (s *Subsystem) close() {
	s.cancel()
	s.work.wait()
	s.stored.Lock()
	s.storedAll = true
	s.stored.Unlock()
	for _, ns := range s.all() {
		ns.letGo()
	}
	if err := s.closeCreated(); err != nil {
		s.t.log.Error("closing volumes of namespaces that hosts created", "subsystem", s.nqn, "err", err)
	}
}

// NQN returns the subsystem's name.
func (s *Subsystem) NQN() string { return s.nqn }

func discoverySubsystem(t *Target, nqn string) *Subsystem {
	s := newSubsystem(t, &SubsystemConfig{NQN: cmp.Or(nqn, nvme.DiscoveryNQN), AllowAnyHost: true})
	s.discovery = true
	return s
}
