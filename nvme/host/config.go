package host

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/limitlog"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Config says which controller to connect to, and how. Transport, Remote and SubNQN must be
// set; the zero value of every other field stands for a good default.
//
// Settings of a single transport (digests, resolution timeouts …) are in that transport's own configuration.
type Config struct {
	Transport Transport
	Remote    netip.AddrPort
	Local     netip.Addr // source address; zero lets the transport choose

	SubNQN string // the subsystem, or nvme.DiscoveryNQN
	// HostNQN is this host's name; "" makes one of the UUID form, from HostID if that is set. A host that
	// reconnects should use the same name.
	HostNQN string
	// HostID goes with the host name; zero means the UUID in HostNQN, or else a random one.
	HostID nvme.HostID

	// Queues is the number of I/O queues to ask for; 0 means one per processor. The
	// controller may grant fewer. A discovery or administrative controller has none.
	Queues int
	// QueueSize is the number of entries of an I/O queue; 0 means 128. The controller may allow fewer. One entry
	// stays free, so QueueSize - 1 commands can be outstanding.
	QueueSize int
	// DisableSQFlow disables flow control of the submission queue (CATTR bit 2), which lets a TCP controller omit
	// the response capsule of a read.
	DisableSQFlow bool

	// Authentication is how the host authenticates itself; if nil, it can't. Controller.Authenticate replaces it.
	Authentication *Authentication

	// KATO is the keep alive timeout: after that long without a sign of life, each side gives the other up. It is
	// sent in milliseconds. 0 means 5 s, or no timeout for a discovery controller; negative means none.
	KATO time.Duration
	// ConnectTimeout bounds Connect as a whole; 0 means 30 s. The error then matches ErrTimeout.
	ConnectTimeout time.Duration
	// IOTimeout is how long an I/O command may take; 0 means 30 s. A command that takes longer is aborted, and if
	// it still hasn't ended after as long again, the controller is given up. Admin commands have 60 s.
	IOTimeout time.Duration

	// NamespacesChanged is called when the controller reports that its namespaces changed, with those that did; if
	// none is named, any of them may have changed. It is called from a goroutine of the controller, one call at a
	// time, and may use the controller, but not Close it.
	NamespacesChanged func(c *Controller, changed []uint32)
	// ReservationNotified is called in the same way for every reservation notification: what the controller has reported
	// is gone from its log.
	ReservationNotified func(c *Controller, n nvme.ReservationNotification)
	// Event is called in the same way for every asynchronous event, after the log page that the event points to was
	// read.
	Event func(c *Controller, e nvme.AsyncEvent)
	// Log receives what goes wrong in the background, rate-limited; nil discards it.
	Log *slog.Logger
}

const (
	defaultQueueSize      = 128
	defaultKATO           = 5 * time.Second
	defaultConnectTimeout = 30 * time.Second
	defaultIOTimeout      = 30 * time.Second
	adminTimeout          = 60 * time.Second

	maxQueues    = 65534
	minQueueSize = 2
	maxQueueSize = 65536
)

// Validate reports what is wrong with c. The error names the field and matches ErrConfig.
func (c *Config) Validate() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("nvme: %w: %s: %w", ErrConfig, field, fmt.Errorf(format, args...))
	}
	switch {
	case c.Transport == nil:
		return bad("Transport", "it must be set")
	case !c.Remote.IsValid() || c.Remote.Port() == 0:
		return bad("Remote", "%v is not an address and port", c.Remote)
	case c.Local.IsValid() && c.Local.Unmap().Is4() != c.Remote.Addr().Unmap().Is4():
		return bad("Local", "%v and %v are of different address families", c.Local, c.Remote.Addr())
	case c.Queues < 0 || c.Queues > maxQueues:
		return bad("Queues", "%d is not between 1 and %d", c.Queues, maxQueues)
	case c.QueueSize != 0 && (c.QueueSize < minQueueSize || c.QueueSize > maxQueueSize):
		return bad("QueueSize", "%d is not between %d and %d", c.QueueSize, minQueueSize, maxQueueSize)
	case c.KATO > 0 && c.KATO < 100*time.Millisecond || c.KATO > 24*time.Hour:
		return bad("KATO", "%v is not between 100ms and 24h", c.KATO)
	case c.ConnectTimeout < 0, c.IOTimeout < 0:
		return bad("ConnectTimeout, IOTimeout", "a timeout must not be negative")
	}
	if err := nvme.CheckSubNQN(c.SubNQN); err != nil {
		return bad("SubNQN", "%w", err)
	}
	if c.Authentication != nil {
		if err := c.Authentication.Validate(); err != nil {
			return bad("Authentication", "%w", err)
		}
	}
	if c.HostNQN != "" {
		if err := nvme.CheckNQN(c.HostNQN); err != nil {
			return bad("HostNQN", "%w", err)
		}
	}
	return nil
}

// withDefaults returns c with every default filled in.
func (c Config) withDefaults() Config {
	if c.HostID.IsZero() {
		id, ok := nvme.HostIDOf(c.HostNQN)
		if !ok {
			id = nvme.NewHostID()
		}
		c.HostID = id
	}
	if c.HostNQN == "" {
		c.HostNQN = c.HostID.NQN()
	}
	c.Queues = cmp.Or(c.Queues, runtime.GOMAXPROCS(0))
	c.QueueSize = cmp.Or(c.QueueSize, defaultQueueSize)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, defaultConnectTimeout)
	c.IOTimeout = cmp.Or(c.IOTimeout, defaultIOTimeout)
	if c.KATO == 0 && c.SubNQN != nvme.DiscoveryNQN {
		c.KATO = defaultKATO
	}
	c.KATO = max(c.KATO, 0)
	c.Log = limitlog.New(c.Log)
	return c
}
