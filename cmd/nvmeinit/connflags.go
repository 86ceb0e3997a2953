package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// connFlags say which controller is meant and how to reach it, with nvme-cli's names.
type connFlags struct {
	transport, traddr, trsvcid string
	hostTraddr                 string
	nqn, hostNQN, hostID       string
	queues, queueSize, kato    int
	hdrDigest, dataDigest      bool
	plainUDP                   bool
	busyPoll                   time.Duration
	pcap                       string
	timeout                    time.Duration
	output                     string
}

// add defines the flags on c. Commands that speak to a discovery controller need no -n, -i, -Q.
func (f *connFlags) add(c *cobra.Command, subsystem bool) {
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringVarP(&f.transport, "transport", "t", "", "rdma or tcp")
	fl.StringVarP(&f.traddr, "traddr", "a", "", "`ADDRESS` of the target")
	fl.StringVarP(&f.trsvcid, "trsvcid", "s", "", "`PORT` of the target (default 4420)")
	fl.StringVarP(&f.hostTraddr, "host-traddr", "w", "", "`ADDRESS` to connect from (default: what the route says)")
	if subsystem {
		fl.StringVarP(&f.nqn, "nqn", "n", "", "`NQN` of the subsystem (default: the only one that the target has)")
		fl.IntVarP(&f.queues, "nr-io-queues", "i", 0, "I/O queues (default: one per processor)")
		fl.IntVarP(&f.queueSize, "queue-size", "Q", 128, "entries of an I/O queue")
		fl.IntVarP(&f.kato, "keep-alive-tmo", "k", 5, "keep alive timeout in seconds, 0 for none")
	}
	fl.StringVarP(&f.hostNQN, "hostnqn", "q", "", "`NQN` of this host (default: nvme-cli's, or one made of the machine's identity)")
	fl.StringVar(&f.hostID, "hostid", "", "`UUID` of this host")
	fl.BoolVarP(&f.hdrDigest, "hdr-digest", "g", false, "TCP: header digests")
	fl.BoolVarP(&f.dataDigest, "data-digest", "G", false, "TCP: data digests")
	fl.BoolVar(&f.plainUDP, "plain-udp", false, "RDMA: no segmentation offload or coalescing, one datagram a message")
	fl.DurationVar(&f.busyPoll, "busy-poll", 0, "RDMA: `time` to spin for packets before blocking; lower latency for a processor")
	fl.StringVar(&f.pcap, "pcap", "", "`FILE` to write what is sent and received to, as pcapng")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long connecting may take")
	fl.StringVarP(&f.output, "output-format", "o", "normal", "normal or json")
}

// validate checks what doesn't need the network.
func (f *connFlags) validate() error {
	switch {
	case f.output != "normal" && f.output != "json":
		return cli.Usage("-o %q: want normal or json", f.output)
	case f.timeout <= 0:
		return cli.Usage("--timeout %v: want a positive time", f.timeout)
	case f.kato < 0:
		return cli.Usage("-k %d: want seconds, or 0 for no keep-alive", f.kato)
	}
	if f.nqn != "" {
		if err := nvme.CheckNQN(f.nqn); err != nil {
			return cli.Usage("-n: %w", err)
		}
	}
	if f.hostNQN != "" {
		if err := nvme.CheckNQN(f.hostNQN); err != nil {
			return cli.Usage("-q: %w", err)
		}
	}
	return nil
}

// identity is the name and UUID of this host.
func (f *connFlags) identity() (nqn string, id nvme.HostID, err error) {
	u := defaultHostID()
	if f.hostID != "" {
		if u, err = uuid.Parse(f.hostID); err != nil {
			return "", id, cli.Usage("--hostid %q: want a UUID", f.hostID)
		}
	}
	if nqn = f.hostNQN; nqn == "" {
		nqn = defaultHostNQN(u)
	}
	return nqn, nvme.HostID(u), nil
}

// config is the host core's configuration for the flags on an open fabric.
func (f *connFlags) config(fab *fabric) (host.Config, error) {
	nqn, id, err := f.identity()
	if err != nil {
		return host.Config{}, err
	}
	c := host.Config{
		Transport: fab.Transport, Remote: fab.remote, Local: fab.local,
		SubNQN: f.nqn, HostNQN: nqn, HostID: id,
		Queues: f.queues, QueueSize: f.queueSize,
		KATO: time.Duration(f.kato) * time.Second, ConnectTimeout: f.timeout,
	}
	if f.kato == 0 {
		c.KATO = -1
	}
	return c, nil
}

// session is a connected controller and its fabric.
type session struct {
	*host.Controller
	fabric *fabric
}

// connect opens the fabric and connects to the subsystem of the flags; without -n to the only
// one that the target's discovery controller names. change, if not nil, alters the
// configuration first.
func (f *connFlags) connect(ctx context.Context, change func(*host.Config)) (*session, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	fab, err := openFabric(f)
	if err != nil {
		return nil, err
	}
	s, err := f.connectOn(ctx, fab, change)
	if err != nil {
		return nil, errors.Join(err, fab.Close())
	}
	return s, nil
}

func (f *connFlags) connectOn(ctx context.Context, fab *fabric, change func(*host.Config)) (*session, error) {
	cfg, err := f.config(fab)
	if err != nil {
		return nil, err
	}
	if cfg.SubNQN == "" {
		if cfg.SubNQN, err = onlySubsystem(ctx, cfg); err != nil {
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

// onlySubsystem asks the target's discovery controller which subsystem it has.
func onlySubsystem(ctx context.Context, cfg host.Config) (string, error) {
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
	if len(names) != 1 {
		return "", fmt.Errorf("the target has %d subsystems: say with -n which; nvmeinit discover lists them", len(names))
	}
	return name, nil
}

// Close shuts the controller down and frees the fabric.
func (s *session) Close() error {
	return errors.Join(s.Controller.Close(), s.fabric.Close())
}
