package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

func newCompare() *cobra.Command {
	f := &copyFlags{}
	c := &cobra.Command{
		Use:   "compare -t TRANSPORT -a ADDRESS --input FILE",
		Short: "Have the target compare a range of a namespace with a file or pipe",
		Long: `compare sends a file or pipe to the target, which compares it with a range of a namespace
(Compare), and fails if they differ: then it says in which block, if the target's error
log does. Offset and length are in bytes and must be whole blocks, and so must be what
the file holds.`,
		Example: `  nvmeinit compare -t rdma -a 127.0.0.1 --nsid 1 --offset 0 --input disk.img
  nvmeinit compare -t tcp -a 127.0.0.1 --offset 64MiB --length 8MiB --input part.img`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return inputCommand(c, f, consumer{"compare", "compared", compareAt, func(*copier, int64) error { return nil }})
		},
	}
	f.add(c, "input", inputHelp, "")
	return c
}

func compareAt(ctx context.Context, ns *host.Namespace, p []byte, off int64) error {
	_, err := ns.Compare(ctx, p, off)
	if !errors.Is(err, nvme.StatusCompareFailure) {
		return err
	}
	if block, ok := blockInError(ctx, ns, err); ok {
		return cli.Say(err, "namespace %d differs from --input in block %d, at offset %d", ns.ID, block, block*uint64(ns.BlockSize()))
	}
	return err
}

// blockInError returns the first block in error of a command that failed with err, if the controller's error log names
// it.
func blockInError(ctx context.Context, ns *host.Namespace, err error) (uint64, bool) {
	var failed *nvme.StatusError
	if !errors.As(err, &failed) {
		return 0, false
	}
	log, logErr := ns.Controller().ErrorLog(ctx)
	if logErr != nil {
		return 0, false
	}
	for i := range log {
		e := &log[i]
		if e.Status().Code() == failed.Status.Code() && e.NSID == failed.NSID && failed.Blocks.Contains(e.LBA) {
			return e.LBA, true
		}
	}
	return 0, false
}
