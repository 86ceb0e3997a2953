package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// defaultNQN is the subsystem's name unless the user gives one.
const defaultNQN = "nqn.2026-11.io.nvme-anywhere:target"

// defaultMemory is what commands over one endpoint may use for data.
const defaultMemory = 256 << 20

// serveFlags are the flags of serve.
type serveFlags struct {
	volumes      []string
	size         cli.Size
	blockSize    cli.Size
	readOnly     bool
	preallocate  bool
	io           string
	nqn          string
	serial       string
	state        string
	discoveryNQN string
	referrals    []string
	hosts        []string
	listen       []string
	metrics      string
	pcap         string
	inCapsule    cli.Size
	inCapsuleSet bool
	queueDepth   int
	controllers  int
	maxConns     int
	maxPeerConns int
	maxQueues    int
	memory       cli.Size
	plainUDP     bool
	busyPoll     time.Duration
	fault        cli.Fault
	logLevel     string
	logJSON      bool
}

func newServe() *cobra.Command {
	f := &serveFlags{}
	c := &cobra.Command{
		Use:   "serve --volume SPEC",
		Short: "Export volumes until interrupted",
		Long: `serve exports each --volume as a namespace of one subsystem, in the order given,
until it is interrupted. A volume is one of these:

  PATH       a file or block device; a file that doesn't exist is created with --size
  mem:SIZE   memory, which is gone when the program ends
  null:SIZE  nothing: reads give zeroes, writes are forgotten; for benchmarks
  pmem:PATH  persistent memory: a file on a DAX file system, or /dev/pmem0; any other
             file is mapped as well, and is durable after a flush. Blocks are written
             whole or not at all, out of place; pmem:PATH,mode=inplace overwrites
             them, and a power failure may leave one torn

It listens on loopback unless --listen says otherwise, and every host that reaches it
may connect unless --allow-host says otherwise: there is no authentication and no
encryption, so keep it on networks that you trust. RDMA needs UDP port 4791 of the
address, which only one program can have.

--fault makes the network of the RNIC a bad one, for what it sends and receives; hosts
that connect over TCP don't meet it. It takes, separated by commas:

` + cli.FaultSyntax + `

Before any of these, a volume may have one or more of

  delay:TIME:   answers come later: delay:2ms:disk.img, delay:1ms-5ms:mem:1GiB
  fail:RULES:   requests fail: fail:read@100-200,write%0.5=capacity:disk.img has reads of
                blocks 100 to 200 fail, and of writes one in 200 for want of space
  freeze:WHEN:  requests wait: freeze:10s+5s:disk.img, from 10 s after the start for 5 s;
                with freeze:manual: from one signal USR1 to the next
  check:        a checksum of each block finds reads that give other data than was
                written; signal USR2 reads and compares all blocks

A file or device that grows, or shrinks, is noticed within a second, and hosts are told.

When it is ready, the last line that it prints begins with "ready".`,
		Example: `  # a file of 1 GiB, over RDMA and TCP, on 127.0.0.1
  nvmetgt serve --volume disk.img --size 1GiB

  # two namespaces, to the network, with figures for Prometheus
  nvmetgt serve --volume /dev/sdb --volume mem:4GiB \
      --listen rdma://192.0.2.1:4420 --listen tcp://192.0.2.1:4420 \
      --metrics 127.0.0.1:9090

  # how does a host take a bad network?
  nvmetgt serve --volume mem:64MiB --fault loss=1%,reorder=1%,delay=200us±50us

  # see what goes over the wire
  nvmetgt serve --volume mem:64MiB --pcap target.pcapng`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f.inCapsuleSet = c.Flags().Changed("in-capsule")
			return serve(c.Context(), f, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.add(c)
	return c
}

func (f *serveFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.volumes, "volume", "v", nil, "what to export: `SPEC` is PATH, mem:SIZE, null:SIZE or pmem:PATH; again for more")
	fl.Var(&f.size, "size", "size of a file to create, as 1GiB")
	fl.Var(&f.blockSize, "block-size", "logical block in bytes, as 512 (default 4096, or the device's)")
	fl.BoolVar(&f.readOnly, "read-only", false, "refuse writes")
	fl.BoolVar(&f.preallocate, "preallocate", false, "reserve the space of a file that is created")
	fl.StringVar(&f.io, "io", "auto", "how files are reached: uring or direct, which is direct I/O by io_uring or by threads, buffered, which is the page cache, or auto, the first of these that works")
	fl.StringVarP(&f.nqn, "nqn", "n", defaultNQN, "`NQN` of the subsystem")
	fl.StringVar(&f.serial, "serial", "", "serial `number` of the subsystem, up to 20 bytes (default derived from --nqn)")
	fl.StringVar(&f.state, "state", "", "`DIRECTORY` for what outlives the program: reservations that persist through power loss")
	fl.StringArrayVar(&f.hosts, "allow-host", nil, "`NQN` of a host that may connect; again for more (default every host)")

	net := cli.NewFlags()
	net.StringArrayVarP(&f.listen, "listen", "l", []string{"rdma://127.0.0.1:4420", "tcp://127.0.0.1:4420"}, "`TRANSPORT://ADDRESS:PORT` to listen on; again for more")
	net.StringVar(&f.discoveryNQN, "discovery-nqn", "", "`NQN` of the discovery subsystem, beside the well-known one")
	net.StringArrayVar(&f.referrals, "referral", nil, "`TRANSPORT://ADDRESS:PORT` of another discovery service that hosts are told of; again for more")
	net.Var(&f.inCapsule, "in-capsule", "data that a command capsule may carry, as 4k; 0 for none (default 4k with RDMA, 16k with TCP)")
	net.BoolVar(&f.plainUDP, "plain-udp", false, "RDMA: one datagram a system call, without segmentation offload and coalescing")
	net.DurationVar(&f.busyPoll, "busy-poll", softrnic.DefaultBusyPoll, "RDMA: longest `time` to look for packets before sleeping; 0: never")
	net.Var(&f.fault, "fault", "RDMA: `FAULTS` to inject, as loss=1%,delay=200us±50us; see above")
	cli.AddFlags(c, "Network", net)

	f.memory = defaultMemory
	limits := cli.NewFlags()
	limits.IntVar(&f.maxConns, "max-connections", 1024, "`connections` of all hosts together; one is one queue")
	limits.IntVar(&f.maxPeerConns, "max-host-connections", 256, "`connections` from one address")
	limits.IntVar(&f.controllers, "max-controllers", 0, "`number` of controllers at most, one a connected host (default 1024, with discovery)")
	limits.IntVar(&f.maxQueues, "max-queues", 64, "I/O `queues` of a controller")
	limits.IntVar(&f.queueDepth, "queue-depth", 128, "`entries` of a queue, and commands outstanding in it")
	limits.Var(&f.memory, "memory", "memory for data, each --listen; one address has a quarter for its commands")
	cli.AddFlags(c, "Limits", limits)

	watch := cli.NewFlags()
	watch.StringVar(&f.metrics, "metrics", "", "`ADDRESS:PORT` to serve figures for Prometheus on, at /metrics")
	watch.StringVar(&f.pcap, "pcap", "", "`FILE` to write every packet to, as pcapng for Wireshark; it must not exist")
	watch.StringVar(&f.logLevel, "log-level", "info", "least `level` to log: debug, info, warn or error")
	watch.BoolVar(&f.logJSON, "log-json", false, "log as JSON")
	cli.AddFlags(c, "Observation", watch)
}

func serve(ctx context.Context, f *serveFlags, stdout, stderr io.Writer) (err error) {
	log, err := f.logger(stderr)
	if err != nil {
		return err
	}
	endpoints, err := f.endpoints()
	if err != nil {
		return err
	}
	if err := f.validate(endpoints); err != nil {
		return err
	}
	s := &server{flags: f, log: log, out: stdout}
	defer func() {
		s.close()
		if err == nil {
			err = s.incomplete
		}
	}()
	if err := s.openVolumes(); err != nil {
		return err
	}
	s.watchVolumes()
	if err := s.openTarget(); err != nil {
		return err
	}
	if err := s.listenAll(endpoints); err != nil {
		return err
	}
	if err := s.serveMetrics(); err != nil {
		return err
	}
	s.announce()
	<-ctx.Done()
	log.Info("stopping")
	return nil
}

func (f *serveFlags) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, cli.Usage("--log-level %q: want debug, info, warn or error", f.logLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	if f.logJSON {
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return slog.New(slog.NewTextHandler(w, o)), nil
}

func (f *serveFlags) endpoints() ([]cli.Endpoint, error) {
	var es []cli.Endpoint
	seen := map[cli.Endpoint]bool{}
	for _, s := range f.listen {
		e, err := cli.ParseEndpoint(s)
		if err != nil {
			return nil, cli.Usage("--listen %w", err)
		}
		if seen[e] {
			return nil, cli.Usage("--listen %s is given twice", e)
		}
		seen[e] = true
		es = append(es, e)
	}
	return es, nil
}
