package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
	"github.com/nvme-anywhere/nvmeof/persist"
)

// Bounds of limits.
const (
	MaxConnections = 65536
	MaxQueues      = 1024
	MinMemory      = 8 << 20
	MaxMemory      = 1 << 38
)

// Bounds of values; those of the transports are the same.
const (
	MinQueueDepth    = nvme.AdminQueueSize
	MaxQueueDepth    = 1024
	maxInCapsuleRDMA = 16 << 10
	maxInCapsuleTCP  = 1 << 20
	maxDrain         = time.Hour
	maxControllers   = int(nvme.CNTLIDMax) / 2
	maxSerial        = len(nvme.IdentifyController{}.SN)
	maxModel         = len(nvme.IdentifyController{}.MN)
)

// MaxSocketPath is what sockaddr_un has room for, except for the terminating zero byte.
const MaxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// Validate reports the first invalid value, as a *FieldError without file and line.
func (c *Config) Validate() error {
	for _, check := range []func() *FieldError{c.checkListen, c.checkDiscovery, c.checkAuthentication, c.checkNetwork, c.checkLimits, c.checkObservation, c.checkDrain, c.checkSubsystems, c.checkPaths, c.checkANA} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkListen() *FieldError {
	seen := map[cli.Endpoint]bool{}
	for i, e := range c.Listen {
		at := fmt.Sprintf("listen[%d]", i)
		if e == (cli.Endpoint{}) { // what an entry without a value is read as
			return field(at, "", "it is missing: want rdma://ADDRESS:PORT or tcp://ADDRESS:PORT")
		}
		if seen[e] {
			return field(at, e.String(), "it is given twice")
		}
		for _, o := range c.Listen[:i] {
			if o.Overlaps(e) {
				return field(at, e.String(), "%s listens there as well: leave one of them out", o)
			}
		}
		seen[e] = true
	}
	return nil
}

func (c *Config) checkDiscovery() *FieldError {
	if c.Discovery.NQN != "" {
		if err := checkNQN("discovery.nqn", c.Discovery.NQN); err != nil {
			return err
		}
	}
	for i, e := range c.Discovery.Referrals {
		r := target.Referral{Transport: e.Transport, Addr: e.Addr}
		if err := r.Validate(); err != nil {
			return &FieldError{Field: fmt.Sprintf("discovery.referrals[%d]", i), Value: e.String(), Err: err}
		}
		if slices.Contains(c.Discovery.Referrals[:i], e) {
			return field(fmt.Sprintf("discovery.referrals[%d]", i), e.String(), "it is given twice")
		}
	}
	return nil
}

func (n *Network) checkEngines() *FieldError {
	switch {
	case n.Engines < 0 || n.Engines > cli.MaxEngines:
		return field("network.engines", fmt.Sprint(n.Engines), "want 1 to %d", cli.MaxEngines)
	case n.Engines > 1 && n.LocalMemory:
		return field("network.engines", fmt.Sprint(n.Engines), "want 1 with local_memory: programs share memory with one RNIC at an address")
	}
	return nil
}

func (c *Config) checkNetwork() *FieldError {
	n := &c.Network
	if n.DSCP < 0 || n.DSCP > cli.MaxDSCP {
		return field("network.dscp", fmt.Sprint(n.DSCP), "want 0 to %d", cli.MaxDSCP)
	}
	if n.Priority < 0 || n.Priority > cli.MaxPriority {
		return field("network.priority", fmt.Sprint(n.Priority), "want 0 (as the DSCP says) to %d", cli.MaxPriority)
	}
	if n.QueueDepth != 0 && (n.QueueDepth < MinQueueDepth || n.QueueDepth > MaxQueueDepth) {
		return field("network.queue_depth", fmt.Sprint(n.QueueDepth), "want %d to %d", MinQueueDepth, MaxQueueDepth)
	}
	rdma := slices.ContainsFunc(c.endpoints(), func(e cli.Endpoint) bool { return e.Transport == nvme.TransportRDMA })
	most := maxInCapsuleTCP
	if rdma {
		most = maxInCapsuleRDMA
	}
	if v := n.InCapsule; v != nil && (*v%16 != 0 || *v < 0 || int64(*v) > int64(most)) {
		return field("network.in_capsule", fmt.Sprint(int64(*v)), "want a multiple of 16, at most %d with RDMA and %d with TCP alone",
			maxInCapsuleRDMA, maxInCapsuleTCP)
	}
	if v := n.BusyPoll; v != nil && (*v < 0 || time.Duration(*v) > cli.MaxBusyPoll) {
		return field("network.busy_poll", time.Duration(*v).String(), "want 0, which is off, to %v", cli.MaxBusyPoll)
	}
	if err := n.checkEngines(); err != nil {
		return err
	}
	if n.Fault != nil && !rdma {
		return field("network.fault", "", "faults are injected into RDMA: listen on rdma://ADDRESS too, or use tc-netem for TCP, as root")
	}
	return nil
}

func (c *Config) checkLimits() *FieldError {
	l := &c.Limits
	for _, x := range []struct {
		name        string
		value, most int
	}{
		{"connections", l.Connections, MaxConnections}, {"host_connections", l.HostConnections, MaxConnections},
		{"half_open", l.HalfOpen, MaxConnections}, {"host_half_open", l.HostHalfOpen, MaxConnections},
		{"controllers", l.Controllers, maxControllers}, {"queues", l.Queues, MaxQueues},
	} {
		if x.value < 0 || x.value > x.most {
			return field("limits."+x.name, fmt.Sprint(x.value), "want 1 to %d", x.most)
		}
	}
	if l.Memory != 0 && (l.Memory < MinMemory || l.Memory > MaxMemory) {
		return field("limits.memory", l.Memory.String(), "want %s to %s", blockdev.FormatSize(MinMemory), blockdev.FormatSize(MaxMemory))
	}
	if d := time.Duration(l.ConnectTimeout); d < 0 {
		return field("limits.connect_timeout", d.String(), "want a positive time, or 0 for the default")
	}
	all := target.Config{Limits: c.TargetLimits()}
	if err := all.Validate(); err != nil {
		return &FieldError{Field: "limits", Err: err}
	}
	return nil
}

// TargetLimits returns the limits in the form that the engine takes.
func (c *Config) TargetLimits() target.Limits {
	l := c.Limits.Explicit()
	return target.Limits{
		Connections: l.Connections, Controllers: l.Controllers, Queues: l.Queues,
		QueueDepth: c.Network.Explicit().QueueDepth, ConnectTimeout: time.Duration(l.ConnectTimeout),
	}
}

func (c *Config) checkObservation() *FieldError {
	if c.Log.Level != "" {
		var level slog.Level
		if level.UnmarshalText([]byte(c.Log.Level)) != nil {
			return field("log.level", fmt.Sprintf("%q", c.Log.Level), "want %s", cli.Or(LogLevels))
		}
	}
	if err := c.checkMetrics(); err != nil {
		return err
	}
	if len(c.Control) > MaxSocketPath {
		return field("control", c.Control, "it has %d bytes, and the path of a socket has %d at most", len(c.Control), MaxSocketPath)
	}
	return nil
}

func (c *Config) checkMetrics() *FieldError {
	if c.Metrics == "" {
		return nil
	}
	addr, err := netip.ParseAddrPort(c.Metrics)
	if err != nil {
		return field("metrics", fmt.Sprintf("%q", c.Metrics), "want ADDRESS:PORT, as 127.0.0.1:9464")
	}
	m := cli.Endpoint{Transport: nvme.TransportTCP, Addr: addr}
	for _, e := range c.endpoints() {
		if e == m || e.Overlaps(m) {
			return field("metrics", c.Metrics, "%s listens there: choose another port", e)
		}
	}
	return nil
}

func (c *Config) checkDrain() *FieldError {
	if d := c.Drain(); d < 0 || d > maxDrain {
		return field("drain_timeout", d.String(), "want 0, which waits for nothing, to %v", maxDrain)
	}
	return nil
}

func (c *Config) checkSubsystems() *FieldError {
	if len(c.Subsystems) == 0 {
		return field("subsystems", "", "there are none: nothing is exported")
	}
	seen, ids := map[string]bool{}, identifiers{}
	for i := range c.Subsystems {
		s, at := &c.Subsystems[i], fmt.Sprintf("subsystems[%d].", i)
		if err := s.check(at); err != nil {
			return err
		}
		if s.NQN == c.Discovery.NQN {
			return field(at+"nqn", s.NQN, "it is the discovery subsystem's, by discovery.nqn: give one of them another")
		}
		if seen[s.NQN] {
			return field(at+"nqn", s.NQN, "it is given twice")
		}
		if err := c.checkCreate(at, s); err != nil {
			return err
		}
		seen[s.NQN] = true
		for j := range s.Namespaces {
			if err := ids.check(fmt.Sprintf("%snamespaces[%d].", at, j), &s.Namespaces[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// check checks a subsystem; at is its place in the file.
func (s *Subsystem) check(at string) *FieldError {
	if err := checkNQN(at+"nqn", s.NQN); err != nil {
		return err
	}
	if s.NQN == nvme.DiscoveryNQN {
		return field(at+"nqn", "", "this name is the discovery subsystem's, which every target has")
	}
	if s.Hosts != nil && len(s.Hosts) == 0 {
		return &FieldError{Field: at + "hosts", Err: errOpen}
	}
	for i, h := range s.Hosts {
		if err := checkNQN(fmt.Sprintf("%shosts[%d]", at, i), h); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name, value string
		size        int
	}{{"serial", s.Serial, maxSerial}, {"model", s.Model, maxModel}} {
		if err := nvme.CheckPadded(f.name, f.value, f.size); err != nil {
			return field(at+f.name, fmt.Sprintf("%q", f.value), "it has %d bytes: want at most %d, of printable ASCII", len(f.value), f.size)
		}
	}
	if len(s.Namespaces) > target.MaxNSID {
		return field(at+"namespaces", "", "it has %d, and the most is %d", len(s.Namespaces), target.MaxNSID)
	}
	if s.MaxControllers < 0 {
		return field(at+"max_controllers", fmt.Sprint(s.MaxControllers), "want 1 or more, or 0 for the default")
	}
	seen := map[uint32]bool{}
	for i := range s.Namespaces {
		n, at := &s.Namespaces[i], fmt.Sprintf("%snamespaces[%d].", at, i)
		if err := n.check(at); err != nil {
			return err
		}
		if n.NSID != 0 && seen[n.NSID] {
			return field(at+"nsid", fmt.Sprint(n.NSID), "it is given twice")
		}
		seen[n.NSID] = true
	}
	return nil
}

func (n *Namespace) check(at string) *FieldError {
	o := n.Options()
	if n.Volume == "" {
		return field(at+"volume", "", "it is missing: name a file, mem:SIZE, null:SIZE or pmem:PATH")
	}
	if err := o.Validate(); err != nil {
		return &FieldError{Field: at + "block_size", Err: err}
	}
	if err := blockdev.CheckSpec(n.Volume, o, VolumeKinds()...); err != nil {
		if op := (*blockdev.OpError)(nil); errors.As(err, &op) {
			err = op.Err // the error names the volume anyway
		}
		return &FieldError{Field: at + "volume", Value: n.Volume, Err: err}
	}
	if !slices.Contains(IOModes, cmp.Or(n.IO, "auto")) {
		return field(at+"io", fmt.Sprintf("%q", n.IO), "want %s", cli.Or(IOModes))
	}
	if n.NSID > target.MaxNSID {
		return field(at+"nsid", fmt.Sprint(n.NSID), "the largest is %d", target.MaxNSID)
	}
	if n.ANAGroup != 0 {
		return checkGroup(at+"ana_group", n.ANAGroup)
	}
	return nil
}

// IOModes are the values of Namespace.IO.
var IOModes = []string{
	blockdev.IOAuto: "auto", blockdev.IODirect: "direct", blockdev.IOBuffered: "buffered", blockdev.IOUring: "uring",
}

// VolumeKinds returns the kinds of volumes that a namespace can have in addition to those of
// blockdev.
func VolumeKinds() []blockdev.Kind { return wrap.Kinds(persist.Kind()) }

// Options returns the options to open a namespace's volume with.
func (n *Namespace) Options() blockdev.Options {
	return blockdev.Options{
		Size: int64(n.Size), BlockSize: int(n.BlockSize), ReadOnly: n.ReadOnly,
		Preallocate: n.Preallocate, IO: blockdev.IOMode(max(slices.Index(IOModes, n.IO), 0)),
	}
}

func checkNQN(name, nqn string) *FieldError {
	if err := nvme.CheckNQN(nqn); err != nil {
		return &FieldError{Field: name, Err: err}
	}
	return nil
}
