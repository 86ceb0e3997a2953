package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// Config is the complete configuration of a target. A zero field means the default.
type Config struct {
	// Listen lists the endpoints to listen on; empty: loopback, over both transports.
	Listen     []cli.Endpoint `yaml:"listen,omitempty"`
	Subsystems []Subsystem    `yaml:"subsystems"`
	ANA        []ANA          `yaml:"ana,omitempty"` // states of ANA groups; empty: all optimized
	Network    Network        `yaml:"network,omitempty"`
	Limits     Limits         `yaml:"limits,omitempty"`
	Metrics    string         `yaml:"metrics,omitempty"` // ADDRESS:PORT for Prometheus; empty: none
	Control    string         `yaml:"control,omitempty"` // path of the control socket; empty: none
	State      string         `yaml:"state,omitempty"`   // directory for state that outlives the program; empty: none
	Discovery  Discovery      `yaml:"discovery,omitempty"`
	// Authentication says which hosts must authenticate themselves; nil: none.
	Authentication *Authentication `yaml:"authentication,omitempty"`
	Pcap           string          `yaml:"pcap,omitempty"` // file for every packet; empty: none
	Log            Log             `yaml:"log,omitempty"`
	// DrainTimeout bounds how long commands in flight may take when the program stops; nil: DefaultDrainTimeout.
	DrainTimeout *Duration `yaml:"drain_timeout,omitempty"`
}

// Subsystem is an NVM subsystem.
type Subsystem struct {
	NQN            string      `yaml:"nqn"`
	Serial         string      `yaml:"serial,omitempty"`          // empty: derived from the NQN
	Model          string      `yaml:"model,omitempty"`           // empty: the program's name
	Hosts          []string    `yaml:"hosts,omitempty"`           // NQNs that may connect; empty: every host
	MaxControllers int         `yaml:"max_controllers,omitempty"` // 0: only the limit of all
	Namespaces     []Namespace `yaml:"namespaces"`
	Create         *Create     `yaml:"create,omitempty"` // nil: hosts create no namespaces
}

// Namespace is a volume and how hosts identify it.
type Namespace struct {
	NSID        uint32   `yaml:"nsid,omitempty"` // 0: the lowest that is free
	Volume      string   `yaml:"volume"`         // as blockdev.Open takes it
	Size        cli.Size `yaml:"size,omitempty"` // of a file to create
	BlockSize   cli.Size `yaml:"block_size,omitempty"`
	ReadOnly    bool     `yaml:"read_only,omitempty"`
	Preallocate bool     `yaml:"preallocate,omitempty"` // reserve the space of a file that is created
	IO          string   `yaml:"io,omitempty"`          // how files are reached: auto (or empty), uring, direct, buffered
	UUID        *UUID    `yaml:"uuid,omitempty"`        // nil: derived from the NQN, the NSID and the volume
	NGUID       *NGUID   `yaml:"nguid,omitempty"`       // nil: none is reported
	EUI64       *EUI64   `yaml:"eui64,omitempty"`       // nil: none is reported
	ANAGroup    uint32   `yaml:"ana_group,omitempty"`   // 0: group 1
}

// Discovery is what hosts are told in addition to the subsystems.
type Discovery struct {
	NQN       string         `yaml:"nqn,omitempty"`       // of the discovery subsystem, in addition to the well-known one
	Referrals []cli.Endpoint `yaml:"referrals,omitempty"` // other discovery services
}

// Network holds the options of the transports.
type Network struct {
	InCapsule   *cli.Size  `yaml:"in_capsule,omitempty"`    // nil: each transport's default
	QueueDepth  int        `yaml:"queue_depth,omitempty"`   // 0: DefaultQueueDepth
	DSCP        int        `yaml:"dscp,omitempty"`          // of RDMA's packets, 0 to 63
	Priority    int        `yaml:"priority,omitempty"`      // of RDMA's packets, 1 to 6; 0: according to DSCP
	PlainUDP    bool       `yaml:"plain_udp,omitempty"`     // no segmentation offload, no coalescing
	NoLocalICRC bool       `yaml:"no_local_icrc,omitempty"` // no ICRC with programs of this kind on this host that set it too
	LocalMemory bool       `yaml:"local_memory,omitempty"`  // shared memory with programs of this kind and user on this host that set it too
	Engines     int        `yaml:"engines,omitempty"`       // RNICs at each address; 0 means 1
	BusyPoll    *Duration  `yaml:"busy_poll,omitempty"`     // nil: the transports' default; 0: never
	Fault       *cli.Fault `yaml:"fault,omitempty"`         // faults to inject into RDMA; nil: none
}

// Limits bound the target's resources that all hosts together can use; 0: the defaults of Explicit.
type Limits struct {
	Connections     int      `yaml:"connections,omitempty"`      // of all hosts together
	HostConnections int      `yaml:"host_connections,omitempty"` // from one address
	HalfOpen        int      `yaml:"half_open,omitempty"`        // RDMA connections not yet confirmed by their hosts
	HostHalfOpen    int      `yaml:"host_half_open,omitempty"`   // of them, from one address
	Controllers     int      `yaml:"controllers,omitempty"`
	Queues          int      `yaml:"queues,omitempty"` // I/O queues per controller
	Memory          cli.Size `yaml:"memory,omitempty"` // for data, per endpoint
	ConnectTimeout  Duration `yaml:"connect_timeout,omitempty"`
}

// Log says what the program logs, and how.
type Log struct {
	Level string `yaml:"level,omitempty"` // one of LogLevels; empty: info
	JSON  bool   `yaml:"json,omitempty"`
}

// LogLevels are the levels of a log.
var LogLevels = []string{"debug", "info", "warn", "error"}

// DefaultDrainTimeout is far longer than commands take, and shorter than a host waits before it gives up on its I/O.
const DefaultDrainTimeout = 5 * time.Second

// Drain returns how long commands in flight may take when the program stops.
func (c *Config) Drain() time.Duration {
	if c.DrainTimeout == nil {
		return DefaultDrainTimeout
	}
	return time.Duration(*c.DrainTimeout)
}

// DefaultQueueDepth is the number of entries of a queue.
const DefaultQueueDepth = 128

// endpoints returns where the target listens: at Listen, or at the default endpoints if it is empty.
func (c *Config) endpoints() []cli.Endpoint {
	if len(c.Listen) > 0 {
		return c.Listen
	}
	var es []cli.Endpoint
	for _, s := range []string{"rdma://127.0.0.1", "tcp://127.0.0.1"} {
		e, err := cli.ParseEndpoint(s)
		if err != nil {
			panic(err)
		}
		es = append(es, e)
	}
	return es
}

// Subsystem returns the subsystem with an NQN, or nil if there is none.
func (c *Config) Subsystem(nqn string) *Subsystem {
	if i := slices.IndexFunc(c.Subsystems, func(s Subsystem) bool { return s.NQN == nqn }); i >= 0 {
		return &c.Subsystems[i]
	}
	return nil
}

// Namespace returns the namespace with an NSID, or nil if there is none.
func (s *Subsystem) Namespace(nsid uint32) *Namespace {
	if i := slices.IndexFunc(s.Namespaces, func(n Namespace) bool { return n.NSID == nsid }); i >= 0 {
		return &s.Namespaces[i]
	}
	return nil
}

// Explicit returns n with those defaults filled in that its volume doesn't decide.
func (n Namespace) Explicit() Namespace {
	n.IO, n.ANAGroup = cmp.Or(n.IO, IOModes[blockdev.IOAuto]), max(n.ANAGroup, 1)
	return n
}

// Explicit returns l with defaults filled in, as the program runs: the defaults are these, not those of the packages.
func (l Limits) Explicit() Limits {
	return Limits{
		Connections: cmp.Or(l.Connections, 1024), HostConnections: cmp.Or(l.HostConnections, 256),
		HalfOpen: cmp.Or(l.HalfOpen, 512), HostHalfOpen: cmp.Or(l.HostHalfOpen, 256),
		Controllers: cmp.Or(l.Controllers, 1024), Queues: cmp.Or(l.Queues, 64),
		Memory: cmp.Or(l.Memory, 256<<20), ConnectTimeout: cmp.Or(l.ConnectTimeout, Duration(10*time.Second)),
	}
}

// Explicit returns n with defaults filled in, except InCapsule, which differs between transports.
func (n Network) Explicit() Network {
	n.QueueDepth = cmp.Or(n.QueueDepth, DefaultQueueDepth)
	n.Engines = cmp.Or(n.Engines, 1)
	if n.BusyPoll == nil {
		n.BusyPoll = new(Duration)
		*n.BusyPoll = Duration(cli.DefaultBusyPoll)
	}
	return n
}

// Explicit returns l with defaults filled in.
func (l Log) Explicit() Log {
	l.Level = cmp.Or(l.Level, "info")
	return l
}

// Clone returns a copy that shares nothing that may be changed.
func (c *Config) Clone() *Config {
	d := *c
	d.Listen = slices.Clone(c.Listen)
	d.Authentication = c.Authentication.clone()
	d.Discovery.Referrals = slices.Clone(c.Discovery.Referrals)
	d.ANA = slices.Clone(c.ANA)
	d.Subsystems = slices.Clone(c.Subsystems)
	for i := range d.Subsystems {
		s := &d.Subsystems[i]
		s.Hosts = slices.Clone(s.Hosts)
		s.Namespaces = slices.Clone(s.Namespaces)
	}
	return &d
}

// Complete fills in what was left open and must not change later: where to listen, and the NSIDs.
func (c *Config) Complete() {
	c.Listen = c.endpoints()
	for i := range c.Subsystems {
		c.Subsystems[i].number()
	}
}

// number gives each namespace without an NSID the lowest free one, in order.
func (s *Subsystem) number() {
	used := map[uint32]bool{}
	for _, n := range s.Namespaces {
		used[n.NSID] = true
	}
	next := uint32(1)
	for i := range s.Namespaces {
		if s.Namespaces[i].NSID != 0 {
			continue
		}
		for used[next] {
			next++
		}
		s.Namespaces[i].NSID, used[next] = next, true
	}
}

// Duration is a time, written as 500ms or 10s.
type Duration time.Duration

// UnmarshalText parses a duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return errDuration
	}
	*d = Duration(v)
	return nil
}

// MarshalText formats d so that UnmarshalText can parse it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }
