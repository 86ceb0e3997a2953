package main

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
)

// defaultNQN is the default name of the subsystem.
const defaultNQN = "nqn.2026-11.io.nvme-anywhere:target"

// serveFlags are the flags of serve: a short form of a configuration with one subsystem.
type serveFlags struct {
	config                            string
	volumes                           []string
	size                              cli.Size
	blockSize                         cli.Size
	readOnly                          bool
	preallocate                       bool
	io                                string
	nqn                               string
	serial                            string
	hosts                             []string
	secrets                           cli.SecretFile
	state                             string
	discoveryNQN                      string
	referrals                         []string
	controllers                       int
	maxConns, maxPeerConns, maxQueues int
	memory                            cli.Size
	listen                            []string
	metrics                           string
	control                           string
	pcap                              string
	inCapsule                         cli.Size
	queueDepth                        int
	packets                           cli.Packets
	drain                             time.Duration
	logLevel                          string
	logJSON                           bool
}

func (f *serveFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "configuration `FILE`, in place of the other flags; see nvmetgt check --help")
	fl.StringArrayVarP(&f.volumes, "volume", "v", nil, "what to export: `SPEC` is PATH, mem:SIZE, null:SIZE or pmem:PATH; repeat for more")
	fl.Var(&f.size, "size", "size of a file to create, as 1GiB")
	fl.Var(&f.blockSize, "block-size", "logical block size in bytes, as 512 (default 4096, or the device's)")
	fl.BoolVar(&f.readOnly, "read-only", false, "refuse writes")
	fl.BoolVar(&f.preallocate, "preallocate", false, "allocate the space of a file that is created")
	fl.StringVar(&f.io, "io", "auto", "how files are accessed: direct or uring (direct I/O by the kernel's asynchronous I/O or by io_uring), buffered (through the page cache), or auto, the first of these that works")
	cli.Offer(fl, "io", config.IOModes)
	fl.StringVarP(&f.nqn, "nqn", "n", defaultNQN, "`NQN` of the subsystem")
	fl.StringVar(&f.serial, "serial", "", "serial `number` of the subsystem, up to 20 bytes (default derived from --nqn)")
	fl.StringArrayVar(&f.hosts, "allow-host", nil, "`NQN` of a host that may connect; repeat for more (default every host)")

	fl.Var(&f.secrets, "dhchap-secrets", "`FILE` with the NQNs and secrets of the hosts that may connect: each must authenticate; see nvmetgt gen-dhchap-key")

	fl.StringVar(&f.state, "state", "", "`DIRECTORY` for what outlives the program: reservations that persist through power loss, write protection and bad blocks that hosts set, the Persistent Event log, a Sanitize that isn't over")

	fl.DurationVar(&f.drain, "drain-timeout", config.DefaultDrainTimeout, "`time` that outstanding commands have to end when it stops; 0: none")

	net := cli.NewFlags()
	net.StringArrayVarP(&f.listen, "listen", "l", []string{"rdma://127.0.0.1:4420", "tcp://127.0.0.1:4420"}, "`TRANSPORT://ADDRESS:PORT` to listen on; repeat for more")
	net.Var(&f.inCapsule, "in-capsule", "data that a command capsule may carry, as 4k; 0 for none (default 4k with RDMA, 16k with TCP)")
	f.packets.AddFlags(net, "see above")
	net.StringVar(&f.discoveryNQN, "discovery-nqn", "", "`NQN` of the discovery subsystem, in addition to the well-known one")
	net.StringArrayVar(&f.referrals, "referral", nil, "`TRANSPORT://ADDRESS:PORT` of another discovery service to refer hosts to; repeat for more")
	cli.AddFlags(c, "Network", net)

	usual := config.Limits{}.Explicit()
	f.memory = usual.Memory
	limits := cli.NewFlags()
	limits.IntVar(&f.maxConns, "max-connections", usual.Connections, "`connections` of all hosts together; each queue is one")
	limits.IntVar(&f.maxPeerConns, "max-host-connections", usual.HostConnections, "`connections` from one address")
	limits.IntVar(&f.controllers, "max-controllers", 0, "largest `number` of controllers, one per connected host (default 1024, including discovery)")
	limits.IntVar(&f.maxQueues, "max-queues", usual.Queues, "I/O `queues` per controller")
	limits.IntVar(&f.queueDepth, "queue-depth", config.DefaultQueueDepth, "`entries` per queue, which bound its outstanding commands")
	limits.Var(&f.memory, "memory", "memory for data, for each --listen; the commands of one address get a quarter, the buffers of all RDMA connections a half")
	cli.AddFlags(c, "Limits", limits)

	watch := cli.NewFlags()
	watch.StringVar(&f.metrics, "metrics", "", "`ADDRESS:PORT` to serve a status page on, with metrics for Prometheus at /metrics")
	watch.StringVar(&f.control, "control", "", "`SOCKET` to create for nvmetgt ctl")
	watch.StringVar(&f.pcap, "pcap", "", "`FILE` to capture all packets in, as pcapng for Wireshark; it must not exist")
	watch.StringVar(&f.logLevel, "log-level", "info", "lowest `level` to log: "+cli.Or(config.LogLevels))
	cli.Offer(watch, "log-level", config.LogLevels)
	watch.BoolVar(&f.logJSON, "log-json", false, "log as JSON")
	cli.AddFlags(c, "Observation", watch)
}

// configuration returns the configuration from the flags of c, or from the file that one of them names.
func (f *serveFlags) configuration(c *cobra.Command) (*config.Config, error) {
	if f.config != "" {
		if c.Flags().NFlag() > 1 {
			return nil, cli.Usage("--config %s says everything: leave the other flags out", f.config)
		}
		return loadConfig(c.Context(), "--config", f.config)
	}
	if len(f.volumes) == 0 {
		return nil, cli.Usage("nothing to export: give a --volume, as --volume disk.img --size 1GiB or --volume mem:1GiB, or a --config")
	}
	cfg := &config.Config{
		Subsystems: []config.Subsystem{f.subsystem()},
		Network:    f.network(c),
		Limits:     f.limits(),
		State:      f.state, Discovery: config.Discovery{NQN: f.discoveryNQN},
		Metrics: f.metrics, Control: f.control, Pcap: f.pcap,
		Log:          config.Log{Level: stated(f.logLevel, config.Log{}.Explicit().Level), JSON: f.logJSON},
		DrainTimeout: duration(f.drain, config.DefaultDrainTimeout),
	}
	if f.secrets != "" {
		cfg.Authentication = &config.Authentication{Secrets: f.secrets.String()}
	}
	var err error
	if cfg.Listen, err = endpoints("listen", f.listen); err != nil {
		return nil, err
	}
	if cfg.Discovery.Referrals, err = endpoints("referral", f.referrals); err != nil {
		return nil, err
	}
	if err := errors.Join(f.packets.Validate(), f.checkLimits(), f.checkFile()); err != nil {
		return nil, err
	}
	return cfg, inFlags(cfg.Validate())
}

// network returns the settings of the transports from the flags.
func (f *serveFlags) network(c *cobra.Command) config.Network {
	p := &f.packets
	n := config.Network{
		QueueDepth: stated(f.queueDepth, config.DefaultQueueDepth), DSCP: p.DSCP, Priority: p.Priority,
		PlainUDP: p.PlainUDP, NoLocalICRC: p.NoLocalICRC, LocalMemory: p.LocalMemory,
		Engines: stated(p.Engines, 1), BusyPoll: duration(p.BusyPoll, cli.DefaultBusyPoll),
	}
	if c.Flags().Changed("in-capsule") {
		n.InCapsule = &f.inCapsule
	}
	if p.Fault.Config != nil {
		n.Fault = &p.Fault
	}
	return n
}

// subsystem returns the subsystem that the flags describe.
func (f *serveFlags) subsystem() config.Subsystem {
	sub := config.Subsystem{NQN: f.nqn, Serial: f.serial, Hosts: f.hosts, MaxControllers: f.controllers}
	for _, v := range f.volumes {
		size := f.size
		if hasOwnSize(v) {
			size = 0 // the flag is for files
		}
		sub.Namespaces = append(sub.Namespaces, config.Namespace{
			Volume: v, Size: size, BlockSize: f.blockSize, ReadOnly: f.readOnly, Preallocate: f.preallocate,
			IO: stated(f.io, config.IOModes[blockdev.IOAuto]),
		})
	}
	return sub
}

func (f *serveFlags) limits() config.Limits {
	usual := config.Limits{}.Explicit()
	return config.Limits{
		Connections: stated(f.maxConns, usual.Connections), HostConnections: stated(f.maxPeerConns, usual.HostConnections),
		Queues: stated(f.maxQueues, usual.Queues), Memory: stated(f.memory, usual.Memory),
	}
}

// stated returns the value of a flag, or zero if it is the default: ctl config shows only what differs from that.
func stated[T comparable](v, usual T) (none T) {
	if v == usual {
		return none
	}
	return v
}

// duration is stated for a time of which zero means none.
func duration(d, usual time.Duration) *config.Duration {
	if d == usual {
		return nil
	}
	return (*config.Duration)(&d)
}

// endpoints parses the values of a flag.
func endpoints(flag string, values []string) (all []cli.Endpoint, err error) {
	for _, v := range values {
		e, err := cli.ParseEndpoint(v)
		if err != nil {
			return nil, cli.Usage("--%s %w", flag, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// checkLimits rejects limits of zero, which in a file mean the default.
func (f *serveFlags) checkLimits() error {
	for _, l := range []struct {
		flag               string
		value, least, most int
	}{
		{"max-connections", f.maxConns, 1, config.MaxConnections}, {"max-host-connections", f.maxPeerConns, 1, config.MaxConnections},
		{"max-queues", f.maxQueues, 1, config.MaxQueues}, {"queue-depth", f.queueDepth, config.MinQueueDepth, config.MaxQueueDepth},
	} {
		if l.value == 0 {
			return cli.Usage("--%s 0: want %d to %d", l.flag, l.least, l.most)
		}
	}
	if f.memory == 0 {
		return cli.Usage("--memory 0: want %s to %s", blockdev.FormatSize(config.MinMemory), blockdev.FormatSize(config.MaxMemory))
	}
	return nil
}

// checkFile rejects flags for creating a file if no volume is a file.
func (f *serveFlags) checkFile() error {
	var flag string
	switch {
	case f.size != 0:
		flag = "--size " + f.size.String()
	case f.preallocate:
		flag = "--preallocate"
	default:
		return nil
	}
	if slices.ContainsFunc(f.volumes, func(v string) bool { return !hasOwnSize(v) }) {
		return nil
	}
	return cli.Usage("%s is for a file that is created: mem:SIZE and null:SIZE say their own", flag)
}

// loadConfig reads a configuration file that a flag or argument names.
func loadConfig(ctx context.Context, what, path string) (*config.Config, error) {
	cfg, _, err := loadText(ctx, what, path)
	return cfg, err
}

// loadText is loadConfig that also returns the content of the file. The file may be a pipe that nobody writes to,
// or a terminal.
func loadText(ctx context.Context, what, path string) (*config.Config, []byte, error) {
	var cfg *config.Config
	text, err := cli.Leaving(ctx, 0, func() (text []byte, err error) {
		cfg, text, err = config.LoadText(path)
		return text, err
	})
	var fe *config.FieldError
	switch {
	case errors.As(err, &fe):
		return nil, nil, &cli.UsageError{Err: err}
	case err != nil:
		return nil, nil, cli.FileError(what, path, err)
	}
	return cfg, text, nil
}

// flagOf maps each field of the configuration to its flag.
var flagOf = map[string]string{
	"listen": "--listen", "metrics": "--metrics", "control": "--control", "pcap": "--pcap", "log.level": "--log-level",
	"network.in_capsule": "--in-capsule", "network.queue_depth": "--queue-depth", "network.fault": "--fault",
	"discovery.nqn": "--discovery-nqn", "discovery.referrals": "--referral",
	"limits.connections": "--max-connections", "limits.host_connections": "--max-host-connections",
	"limits.queues": "--max-queues", "limits.memory": "--memory",
	"drain_timeout":  "--drain-timeout",
	"subsystems.nqn": "--nqn", "subsystems.serial": "--serial", "subsystems.hosts": "--allow-host", "subsystems.max_controllers": "--max-controllers",
	"subsystems.namespaces": "--volume", "subsystems.namespaces.volume": "--volume", "subsystems.namespaces.block_size": "--block-size",
	"subsystems.namespaces.io": "--io",
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// inFlags expresses an error of the configuration in terms of the flags that it was made from.
func inFlags(err error) error {
	var fe *config.FieldError
	if !errors.As(err, &fe) {
		return err
	}
	e := *fe
	if flag := flagOf[indexes.ReplaceAllString(e.Field, "")]; flag != "" {
		e.Field = flag
	}
	return &cli.UsageError{Err: &e}
}
