package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// connFlags says which controller to connect to and how to reach it, with nvme-cli's names.
type connFlags struct {
	transport, traddr, trsvcid string
	hostTraddr                 string
	nqn, hostNQN, hostID       string
	queues, queueSize, kato    int
	disableSQFlow              bool
	hdrDigest, dataDigest      bool
	packets                    cli.Packets
	pcap                       string
	timeout                    time.Duration
	output                     cli.Format
	decode                     bool // bit fields, for people
	paths                      pathFlags
	secrets                    secretFlags

	lasting bool              // the target will remember this host, so that its name has to last
	capture *softrnic.Capture // if already open
	name    string            // of this host, once known
	stderr  func() io.Writer  // of the command, as it is once that runs
}

// add defines the flags on c, after its own. Commands that talk to a discovery controller don't need -n, -i, -Q and
// -k.
func (f *connFlags) add(c *cobra.Command, subsystem bool) {
	f.stderr = c.ErrOrStderr
	fl := cli.NewFlags()
	fl.StringVarP(&f.transport, "transport", "t", "", "`TRANSPORT`: "+cli.Or(cli.Transports()))
	cli.Offer(fl, "transport", cli.Transports())
	fl.StringVarP(&f.traddr, "traddr", "a", "", "IP `ADDRESS` of the target, or its name")
	fl.StringVarP(&f.trsvcid, "trsvcid", "s", "", "`PORT` of the target (default 4420)")
	fl.StringVarP(&f.hostTraddr, "host-traddr", "w", "", "IP `ADDRESS` to connect from (default chosen by the route)")
	if subsystem {
		fl.StringVarP(&f.nqn, "nqn", "n", "", "`NQN` of the subsystem (default the only one of the target)")
	}
	fl.StringVarP(&f.hostNQN, "hostnqn", "q", "", "`NQN` of this host (default nvme-cli's, or one derived from the machine's identity)")
	fl.StringVarP(&f.hostID, "hostid", "I", "", "`UUID` of this host (default likewise)")
	f.secrets.add(fl)
	if subsystem {
		fl.IntVarP(&f.queues, "nr-io-queues", "i", 0, "`number` of I/O queues (default one per processor)")
		fl.IntVarP(&f.queueSize, "queue-size", "Q", 128, "`entries` of an I/O queue")
		fl.IntVarP(&f.kato, "keep-alive-tmo", "k", 5, "`seconds` of silence after which either side gives up on the other, 0 for never")
		fl.BoolVarP(&f.disableSQFlow, "disable-sqflow", "d", false, "no flow control of submission queues; a TCP target may then answer a read with its data alone")
	}
	fl.DurationVar(&f.timeout, "timeout", 10*time.Second, "`time` that connecting may take")
	fl.BoolVarP(&f.hdrDigest, "hdr-digest", "g", false, "TCP: protect headers with digests")
	fl.BoolVarP(&f.dataDigest, "data-digest", "G", false, "TCP: protect data with digests")
	f.packets.AddFlags(fl, "nvmetgt serve --help lists them")
	fl.StringVar(&f.pcap, "pcap", "", "`FILE` to capture all packets in, as pcapng for Wireshark; it must not exist")
	cli.AddFlags(c, "Connection", fl)
}

// addOutput defines -o, for commands that print something.
func (f *connFlags) addOutput(c *cobra.Command) {
	cli.OutputFlag(c.Flags(), &f.output)
}

// Bounds of the flags.
const (
	maxQueues    = 65534
	maxQueueSize = 65536
	maxKATO      = 24 * 60 * 60 // seconds
)

// validate checks what doesn't need the network.
func (f *connFlags) validate() error {
	switch {
	case f.timeout <= 0:
		return cli.Usage("--timeout %v: want a positive time", f.timeout)
	case f.queues < 0 || f.queues > maxQueues:
		return cli.Usage("-i %d: want 1 to %d I/O queues, or 0 for one per processor", f.queues, maxQueues)
	case f.queueSize != 0 && (f.queueSize < 2 || f.queueSize > maxQueueSize):
		return cli.Usage("-Q %d: want 2 to %d entries", f.queueSize, maxQueueSize)
	case f.kato < 0 || f.kato > maxKATO:
		return cli.Usage("-k %d: want 1 to %d seconds, or 0 for no keep-alive", f.kato, maxKATO)
	case f.transport == "tcp" && f.packets.Fault.Config != nil:
		return cli.Usage("--fault: faults are injected into RDMA; for TCP use tc-netem, as root")
	case f.transport == "rdma" && (f.hdrDigest || f.dataDigest):
		return cli.Usage("-g and -G: digests belong to NVMe/TCP; RDMA protects every packet by its ICRC")
	}
	if err := f.packets.Validate(); err != nil {
		return err
	}
	if f.nqn != "" {
		if _, err := strconv.ParseUint(f.nqn, 0, 32); err == nil { // as some of nvme-cli's commands have it
			return cli.Usage("-n %s: it takes the NQN of a subsystem; is --nsid %[1]s meant?", f.nqn)
		}
		if err := cli.CheckSubNQN("-n", f.nqn); err != nil {
			return err
		}
	}
	if f.hostNQN != "" {
		return cli.CheckNQN("-q", f.hostNQN)
	}
	return nil
}

// config returns the host core's configuration for the flags on an open fabric.
func (f *connFlags) config(ctx context.Context, fab *fabric) (host.Config, error) {
	nqn, id, err := f.identity()
	if err != nil {
		return host.Config{}, err
	}
	c := host.Config{
		Transport: fab.Transport, Remote: fab.remote, Local: fab.local,
		SubNQN: f.nqn, HostNQN: nqn, HostID: id,
		Queues: f.queues, QueueSize: f.queueSize, DisableSQFlow: f.disableSQFlow,
		KATO: time.Duration(f.kato) * time.Second, ConnectTimeout: f.timeout,
	}
	if f.kato == 0 {
		c.KATO = -1
	}
	c.Authentication, err = f.secrets.authentication(ctx, 0)
	return c, err
}

// session is a connected controller and its fabric.
type session struct {
	*host.Controller
	fabric *fabric
}

// connect opens the fabric and connects to the subsystem that the flags name, or without -n to the only one that
// the target's discovery controller lists. change, if not nil, alters the configuration first.
func (f *connFlags) connect(ctx context.Context, change func(*host.Config)) (*session, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	if err := f.lookUp(ctx); err != nil {
		return nil, err
	}
	fab, err := openFabric(f)
	if err != nil {
		return nil, err
	}
	s, err := f.connectOn(ctx, fab, change)
	if err != nil {
		return nil, errors.Join(f.explain(err), fab.Close())
	}
	return s, nil
}

func (f *connFlags) connectOn(ctx context.Context, fab *fabric, change func(*host.Config)) (*session, error) {
	cfg, err := f.config(ctx, fab)
	if err != nil {
		return nil, err
	}
	if cfg.SubNQN == "" {
		if cfg.SubNQN, err = f.onlySubsystem(ctx, cfg); err != nil {
			return nil, err
		}
	}
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	c, err := host.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &session{c, fab}, nil
}

// onlySubsystem asks the target's discovery controller for its only subsystem.
func (f *connFlags) onlySubsystem(ctx context.Context, cfg host.Config) (string, error) {
	log, err := host.Discover(ctx, cfg)
	if err != nil {
		return "", err
	}
	names := map[string]bool{}
	var name string
	for i := range log.Entries {
		if e := &log.Entries[i]; e.SUBTYPE == nvme.SubsystemNVM {
			name = e.NQN()
			names[name] = true
		}
	}
	switch len(names) {
	case 0:
		return "", fmt.Errorf("%s://%s has no subsystem for host %s; allow it there (nvmetgt serve --allow-host), or come as another with -q",
			cfg.Transport.Type(), cfg.Remote, f.name)
	case 1:
		return name, nil
	}
	return "", fmt.Errorf("%s://%s has %d subsystems: choose one with -n; nvmeinit discover lists them",
		cfg.Transport.Type(), cfg.Remote, len(names))
}

// namespace opens a namespace.
func (s *session) namespace(ctx context.Context, nsid uint32) (*host.Namespace, error) {
	ns, err := s.Namespace(ctx, nsid)
	if errors.Is(err, nvme.StatusInvalidNamespace) {
		return nil, noNamespace(ctx, s.Controller, nsid, err)
	}
	return ns, err
}

// namespaceInfo reads what the controller says of a namespace.
func (s *session) namespaceInfo(ctx context.Context, nsid uint32) (*host.NamespaceInfo, error) {
	info, err := s.NamespaceInfo(ctx, nsid)
	if errors.Is(err, nvme.StatusInvalidNamespace) {
		return nil, noNamespace(ctx, s.Controller, nsid, err)
	}
	return info, err
}

// Close shuts the controller down and frees the fabric.
func (s *session) Close() error {
	return errors.Join(s.Controller.Close(), s.fabric.Close())
}
