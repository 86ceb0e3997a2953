package target

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/bits"
	"reflect"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Config is the configuration of a target. The zero value is a target with only a discovery subsystem; subsystems,
// namespaces and ports may be added later.
type Config struct {
	Subsystems []SubsystemConfig
	Ports      []Port
	Referrals  []Referral // other discovery services that hosts are told of
	// DiscoveryNQN is a name that only this target's discovery subsystem has, for hosts that use several. The subsystem
	// answers to the well-known name as well, which is its only name if this is empty.
	DiscoveryNQN string
	Limits       Limits
	// Authentication says which hosts have to authenticate themselves; with nil, none has to. Target.SetAuthentication
	// changes it.
	Authentication *Authentication
	// Store keeps what persists through power loss; without one, reservations can't persist.
	Store Store
	// Log gets connects, disconnects and their reasons, at a bounded rate; nil discards them.
	Log *slog.Logger
}

// Limits bounds what hosts can make the target hold. A zero field means the default, which is given after the
// semicolon.
type Limits struct {
	Connections int // queues of all hosts together, connected or not yet; 1024
	Controllers int // controllers of all hosts together, discovery included; 1024
	Queues      int // I/O queues of a controller; 64
	QueueDepth  int // entries of a queue, if the transport holds that many; 1024
	// ConnectTimeout is how long a connection may exist without a successful Connect command; 10 s.
	ConnectTimeout time.Duration
}

// SubsystemConfig is the configuration of an NVM subsystem.
type SubsystemConfig struct {
	NQN      string
	Serial   string // at most 20 bytes of ASCII; empty: derived from the NQN (DeriveSerial)
	Model    string // at most 40 bytes of ASCII; empty: DefaultModel
	Firmware string // at most 8 bytes of ASCII; empty: "1.0"

	// AllowAnyHost lets every host connect; otherwise only Hosts, by NQN, may connect, and none can if it is empty.
	AllowAnyHost bool
	Hosts        []string

	MaxControllers int // 0: only Limits.Controllers counts
	Namespaces     []NamespaceConfig

	// Pool, if it isn't nil, lets every host of the subsystem create and delete namespaces, attach any namespace to
	// controllers and detach it. It needs a Store. A Directory of package blockdev is a Pool.
	Pool Pool
}

// NamespaceConfig is the configuration of a namespace on a volume. The caller keeps ownership of the volume, and closes
// it after the namespace was removed or the target closed.
type NamespaceConfig struct {
	NSID uint32 // 1 to MaxNSID; 0: the lowest that is free
	// Volume holds the blocks. If it is a blockdev.Resizer, hosts are told of each new size; the caller has to call
	// Refresh. A blockdev.Memory or blockdev.Registrar must be comparable, as a pointer is.
	Volume blockdev.Volume

	// UUID, NGUID and EUI64 identify the namespace globally and for good: no two namespaces of a subsystem have the
	// same. NGUID and EUI64 are not reported if zero; a zero UUID is derived from the subsystem's NQN, the NSID, and the
	// kind and path of the volume (DeriveUUID).
	UUID  [16]byte
	NGUID [16]byte
	EUI64 [8]byte

	ReadOnly bool // write protected, whatever the volume allows

	ANAGroup uint32 // 1 to MaxANAGroup; 0: 1. Target.SetANAState sets the states of groups.

	created, private bool // a host created it; attached to one controller at a time
}

// MaxNSID is the largest NSID.
const MaxNSID = 1024

// Bounds of Limits. The number of I/O queues is bounded by Set Features 07h, the depth by CAP.MQES, which is 0-based
// and has 16 bits.
const (
	maxQueues     = 1024
	maxQueueDepth = 65536
	minQueueDepth = nvme.AdminQueueSize
	// maxControllers leaves CNTLIDs that are not in use.
	maxControllers = int(nvme.CNTLIDMax) / 2
)

func (l Limits) withDefaults() Limits {
	l.Connections = cmp.Or(l.Connections, 1024)
	l.Controllers = cmp.Or(l.Controllers, 1024)
	l.Queues = cmp.Or(l.Queues, 64)
	l.QueueDepth = cmp.Or(l.QueueDepth, 1024)
	l.ConnectTimeout = cmp.Or(l.ConnectTimeout, 10*time.Second)
	return l
}

func (l Limits) validate() error {
	l = l.withDefaults()
	switch {
	case l.Connections < 1:
		return configError("Limits.Connections is %d, at least 1 is needed", l.Connections)
	case l.Controllers < 1 || l.Controllers > maxControllers:
		return configError("Limits.Controllers is %d, it must be 1 to %d", l.Controllers, maxControllers)
	case l.Queues < 1 || l.Queues > maxQueues:
		return configError("Limits.Queues is %d, it must be 1 to %d", l.Queues, maxQueues)
	case l.QueueDepth < minQueueDepth || l.QueueDepth > maxQueueDepth:
		return configError("Limits.QueueDepth is %d, it must be %d to %d", l.QueueDepth, minQueueDepth, maxQueueDepth)
	case l.ConnectTimeout < 0:
		return configError("Limits.ConnectTimeout is negative")
	}
	return nil
}

// Validate reports what is wrong with c, and what it must be.
func (c *Config) Validate() error {
	if err := c.Limits.validate(); err != nil {
		return err
	}
	if c.DiscoveryNQN != "" {
		if err := nvme.CheckNQN(c.DiscoveryNQN); err != nil {
			return configError("DiscoveryNQN: %v", err)
		}
	}
	if c.Authentication != nil {
		if err := c.Authentication.Validate(); err != nil {
			return err
		}
	}
	seen := map[string]bool{c.DiscoveryNQN: true}
	for i := range c.Subsystems {
		s := &c.Subsystems[i]
		if err := s.Validate(); err != nil {
			return err
		}
		if seen[s.NQN] {
			return configError("subsystem %s is there twice", s.NQN)
		}
		seen[s.NQN] = true
	}
	for i := range c.Ports {
		if err := c.Ports[i].Validate(); err != nil {
			return err
		}
	}
	for i := range c.Referrals {
		if err := c.Referrals[i].Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Validate reports what is wrong with s.
func (s *SubsystemConfig) Validate() error {
	if err := nvme.CheckNQN(s.NQN); err != nil {
		return configError("subsystem: %v", err)
	}
	if s.NQN == nvme.DiscoveryNQN {
		return configError("subsystem %s: this name is the discovery subsystem's, which every target has", s.NQN)
	}
	for _, f := range []struct {
		name, value string
		size        int
	}{{"serial number", s.Serial, 20}, {"model", s.Model, 40}, {"firmware revision", s.Firmware, 8}} {
		if err := nvme.CheckPadded(f.name, f.value, f.size); err != nil {
			return configError("subsystem %s: %v", s.NQN, err)
		}
	}
	for _, h := range s.Hosts {
		if err := nvme.CheckNQN(h); err != nil {
			return configError("subsystem %s: host: %v", s.NQN, err)
		}
	}
	if s.MaxControllers < 0 {
		return configError("subsystem %s: MaxControllers is negative", s.NQN)
	}
	seen := map[uint32]bool{}
	for i := range s.Namespaces {
		n := &s.Namespaces[i]
		if err := n.Validate(); err != nil {
			return within(s.NQN, err)
		}
		if n.NSID != 0 && seen[n.NSID] {
			return configError("subsystem %s: namespace %d is there twice", s.NQN, n.NSID)
		}
		seen[n.NSID] = true
	}
	return nil
}

// Validate reports what is wrong with n.
func (n *NamespaceConfig) Validate() error {
	if n.NSID > MaxNSID {
		return configError("%s: the largest NSID is %d", n.name(), MaxNSID)
	}
	if n.ANAGroup > MaxANAGroup {
		return configError("%s: ANA group %d, the largest is %d", n.name(), n.ANAGroup, MaxANAGroup)
	}
	if n.Volume == nil {
		return configError("%s has no volume", n.name())
	}
	_, shows := n.Volume.(blockdev.Memory)
	_, registers := n.Volume.(blockdev.Registrar)
	if (shows || registers) && !reflect.ValueOf(n.Volume).Comparable() { // Buffers has them in maps
		return configError("%s: volumes of type %T can't be compared with one another: give a pointer", n.name(), n.Volume)
	}
	i := n.Volume.Info()
	if i.BlockSize < blockdev.MinBlockSize || i.BlockSize > blockdev.MaxBlockSize || bits.OnesCount(uint(i.BlockSize)) != 1 {
		return configError("%s: block size %d must be a power of two from %d to %d",
			n.name(), i.BlockSize, blockdev.MinBlockSize, blockdev.MaxBlockSize)
	}
	if err := blockdev.CheckSize(i.Size, i.BlockSize); err != nil {
		return configError("%s: %v", n.name(), err)
	}
	return nil
}

// name is how errors refer to n.
func (n *NamespaceConfig) name() string {
	if n.NSID == 0 {
		return "a namespace without an NSID"
	}
	return fmt.Sprintf("namespace %d", n.NSID)
}
