package main

import (
	"context"
	"io"
	"log/slog"
	"os"

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
  mem:SIZE   memory, which is lost when the program ends
  null:SIZE  nothing: reads return zeroes, writes are discarded; for benchmarks
  pmem:PATH  persistent memory: a file on a DAX file system; any other file, or a block
             device, is mapped as well, and is durable after a flush. Blocks are
             written whole or not at all, out of place; pmem:PATH,mode=inplace
             overwrites them, and a power failure may leave one torn

It listens on loopback unless --listen says otherwise (there 0.0.0.0 means every IPv4
address and [::] every IPv6 one; for RDMA those that exist when it starts, except
fe80::/10). Every host that can reach it may connect, unless you restrict that by
--allow-host, which relies on the name that a host claims, or by --dhchap-secrets, which
makes hosts prove who they are. Nothing is encrypted, so use it on networks that you
trust. RDMA needs UDP port 4791 of the address, which only one program can have.

--fault makes the RNIC's network a bad one, in both directions; hosts that connect over
TCP aren't affected. It takes, separated by commas:

` + cli.FaultSyntax + `

A volume may have one or more of these prefixes:

  delay:TIME:   delay answers: delay:2ms:disk.img, delay:1ms-5ms:mem:1GiB
  fail:RULES:   make requests fail: fail:read@100-200,write%0.5=capacity:disk.img fails
                reads of blocks 100 to 200, and one write in 200 for lack of space; a
                rule is OP@BLOCK, OP@FIRST-LAST or OP%PERCENT, where OP is read, write,
                flush, discard, zeroes or any, with =medium (which is also what it is
                without), =capacity, =readonly, =gone or =busy
  freeze:WHEN:  make requests wait: freeze:10s+5s:disk.img, for 5 s from 10 s after the
                start; with freeze:manual:, from one signal USR1 to the next
  check:        keep a checksum of each block, to find reads that return other data than
                was written; signal USR2 reads and compares all blocks

If a file or device grows or shrinks, hosts are told within a second. Signal HUP makes it
read the file of --config again.

When it is ready, it prints a last line that begins with "ready".`

const serveExample = `  # a file of 1 GiB, over RDMA and TCP, on 127.0.0.1
  nvmetgt serve --volume disk.img --size 1GiB

  # two namespaces, on the network, with metrics for Prometheus
  nvmetgt serve --volume /dev/sdb --volume mem:4GiB \
      --listen rdma://192.0.2.1:4420 --listen tcp://192.0.2.1:4420 \
      --metrics 127.0.0.1:9464

  # how does a host cope with a bad network?
  nvmetgt serve --volume mem:64MiB --fault loss=1%,reorder=1%,delay=200us±50us

  # see what goes over the wire
  nvmetgt serve --volume mem:64MiB --pcap target.pcapng`

func serve(ctx context.Context, cfg *config.Config, file string, stdout, stderr io.Writer) (err error) {
	s := &server{log: newLogger(cfg.Log, stderr), file: file, starting: ctx}
	slog.SetLogLoggerLevel(slog.LevelWarn)
	slog.SetDefault(s.log) // for libraries, such as net/http
	if file == "" {
		s.mark = "--"
	}
	var hangups <-chan os.Signal
	if file != "" { // otherwise there is nothing to read again, and the signal ends the program, as when its terminal closes
		heed, ignore := context.WithCancel(context.Background())
		defer ignore()
		hangups = cli.Hangups(heed)
	}
	// To open a volume may take forever, if a file system doesn't answer.
	opened, err := cli.Leaving(ctx, closeGrace, func() (bool, error) { return true, start(cfg, s) })
	if !opened {
		return err // what start has opened so far is still start's
	}
	further := make(chan os.Signal, 2) // that come once the program has begun to stop
	defer func() {
		if cut := s.end(further); err == nil {
			err = cut
		}
	}()
	if err != nil {
		return err
	}
	if err := s.serveMetrics(); err != nil {
		return err
	}
	if err := s.serveControl(); err != nil {
		return err
	}
	if hangups != nil {
		s.reloadOn(hangups)
	}
	if err := s.announce(stdout); err != nil {
		return err
	}
	<-ctx.Done()
	s.log.Info("stopping")
	s.stop(further)
	return nil
}
