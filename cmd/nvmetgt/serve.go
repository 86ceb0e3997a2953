package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
)

func newServe() *cobra.Command {
	f := &serveFlags{}
	c := &cobra.Command{
		Use:     "serve {--volume SPEC | --config FILE}",
		Short:   "Export volumes until interrupted",
		Long:    serveText,
		Example: serveExample,
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := f.configuration(c)
			if err != nil {
				return err
			}
			return serve(c.Context(), cfg, f.config, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.add(c)
	return c
}

var serveText = `serve exports each --volume as a namespace of one subsystem, in the order given,
until it is interrupted. A volume is one of these:

  PATH       a file or block device; a file that doesn't exist is created with --size
  mem:SIZE   memory, which is gone when the program ends
  null:SIZE  nothing: reads give zeroes, writes are forgotten; for benchmarks
  pmem:PATH  persistent memory: a file on a DAX file system, or /dev/pmem0; any other
             file is mapped as well, and is durable after a flush. Blocks are written
             whole or not at all, out of place; pmem:PATH,mode=inplace overwrites
             them, and a power failure may leave one torn

It listens on loopback unless --listen says otherwise (0.0.0.0 there is every IPv4
address, and [::] every IPv6 one; for RDMA those that there are when it starts, and none
of fe80::/10). Every host that reaches it may connect unless --allow-host says
otherwise, which goes by the name that a host gives itself, or --dhchap-secrets, which
has hosts prove who they are. There is no encryption, so keep it on networks that you
trust. RDMA needs UDP port 4791 of the address, which only one program can have.

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
Signal HUP has the file of --config read again.

When it is ready, the last line that it prints begins with "ready".`

const serveExample = `  # a file of 1 GiB, over RDMA and TCP, on 127.0.0.1
  nvmetgt serve --volume disk.img --size 1GiB

  # two namespaces, to the network, with figures for Prometheus
  nvmetgt serve --volume /dev/sdb --volume mem:4GiB \
      --listen rdma://192.0.2.1:4420 --listen tcp://192.0.2.1:4420 \
      --metrics 127.0.0.1:9090

  # how does a host take a bad network?
  nvmetgt serve --volume mem:64MiB --fault loss=1%,reorder=1%,delay=200us±50us

  # see what goes over the wire
  nvmetgt serve --volume mem:64MiB --pcap target.pcapng`

func serve(ctx context.Context, cfg *config.Config, file string, stdout, stderr io.Writer) (err error) {
	s := &server{log: newLogger(cfg.Log, stderr), file: file, starting: ctx}
	if file == "" {
		s.mark = "--"
	}
	defer func() {
		if cut := s.end(); err == nil {
			err = cut
		}
	}()
	if err := start(cfg, s); err != nil {
		return err
	}
	if err := s.serveMetrics(); err != nil {
		return err
	}
	if err := s.serveControl(); err != nil {
		return err
	}
	s.reloadOnHangup()
	if err := s.announce(stdout); err != nil {
		return err
	}
	<-ctx.Done()
	s.log.Info("stopping")
	s.stop()
	return nil
}

func newLogger(cfg config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	if cfg.Level != "" {
		_ = level.UnmarshalText([]byte(cfg.Level)) // the configuration is valid
	}
	o := &slog.HandlerOptions{Level: level}
	if cfg.JSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
