package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// defaultNQN is the subsystem's name unless the user gives one.
const defaultNQN = "nqn.2026-11.io.nvme-anywhere:target"

// serveFlags are the flags of serve.
type serveFlags struct {
	volumes      []string
	size         cli.Size
	blockSize    cli.Size
	readOnly     bool
	buffered     bool
	nqn          string
	serial       string
	hosts        []string
	listen       []string
	metrics      string
	pcap         string
	inCapsule    cli.Size
	inCapsuleSet bool
	queueDepth   int
	plainUDP     bool
	busyPoll     time.Duration
	logLevel     string
	logJSON      bool
}

func newServe() *cobra.Command {
	f := &serveFlags{}
	c := &cobra.Command{
		Use:   "serve --volume SPEC [flags]",
		Short: "Export volumes until interrupted",
		Long: `serve exports each --volume as a namespace of one subsystem, in the order given.

A volume is a file or block device (PATH, created with --size where it does not
exist), memory (mem:SIZE), nothing at all (null:SIZE, for benchmarks), or
persistent memory (pmem:PATH: a file on a DAX file system, or any file).

It listens on loopback unless --listen says otherwise. RDMA uses UDP port 4791 of
the same address, which no other program on that address may have.`,
		Example: `  # a file of 1 GiB, over RDMA and TCP, on 127.0.0.1
  nvmetgt serve --volume disk.img --size 1GiB

  # two namespaces, to the network, with figures for Prometheus
  nvmetgt serve --volume /dev/sdb --volume mem:4GiB \
      --listen rdma://192.0.2.1:4420 --listen tcp://192.0.2.1:4420 \
      --metrics 127.0.0.1:9090

  # see what goes over the wire
  nvmetgt serve --volume mem:64MiB --pcap target.pcapng`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f.inCapsuleSet = c.Flags().Changed("in-capsule")
			return serve(c.Context(), f, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.volumes, "volume", "v", nil, "volume to export: `SPEC` is PATH, mem:SIZE, null:SIZE or pmem:PATH (again for more)")
	fl.Var(&f.size, "size", "size of a file to create, as 1GiB")
	fl.Var(&f.blockSize, "block-size", "logical block, as 512 or 4096 (default: 4096, or the device's)")
	fl.BoolVar(&f.readOnly, "read-only", false, "refuse writes")
	fl.BoolVar(&f.buffered, "buffered", false, "reach files through the page cache, not with direct I/O")
	fl.StringVarP(&f.nqn, "nqn", "n", defaultNQN, "name of the subsystem")
	fl.StringVar(&f.serial, "serial", "", "serial number (default: derived from the name)")
	fl.StringArrayVar(&f.hosts, "allow-host", nil, "`NQN` of a host that may connect (again for more; default: every host)")
	fl.StringArrayVarP(&f.listen, "listen", "l", []string{"rdma://127.0.0.1:4420", "tcp://127.0.0.1:4420"}, "`TRANSPORT://ADDR:PORT` to listen on (again for more)")
	fl.StringVar(&f.metrics, "metrics", "", "`ADDR:PORT` to serve Prometheus figures on")
	fl.StringVar(&f.pcap, "pcap", "", "`FILE` to write packets to, as pcapng: those of the software RNIC, and NVMe/TCP")
	fl.Var(&f.inCapsule, "in-capsule", "data that a command capsule may carry, as 4k; 0 for none (default 4k with RDMA, 16k with TCP)")
	fl.IntVar(&f.queueDepth, "queue-depth", 128, "entries of a queue at most")
	fl.BoolVar(&f.plainUDP, "plain-udp", false, "RDMA: no segmentation offload or coalescing, one datagram a message")
	fl.DurationVar(&f.busyPoll, "busy-poll", 0, "RDMA: `time` to spin for packets before blocking; lower latency for a processor")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	fl.BoolVar(&f.logJSON, "log-json", false, "log as JSON")
	return c
}

func serve(ctx context.Context, f *serveFlags, stdout, stderr io.Writer) error {
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
	defer s.close()
	if err := s.openVolumes(); err != nil {
		return err
	}
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
			return nil, cli.Usage("--listen %w; write it as rdma://127.0.0.1:4420 or tcp://127.0.0.1:4420", err)
		}
		if seen[e] {
			return nil, cli.Usage("--listen %s is given twice", e)
		}
		seen[e] = true
		es = append(es, e)
	}
	return es, nil
}
