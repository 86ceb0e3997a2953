package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

func newDiscard() *cobra.Command {
	return rangeCommand("discard", "Discard (deallocate) a range of a namespace",
		`discard tells the target that a range of a namespace isn't needed any more (Dataset
Management), so that it can free the space, and prints nothing. What the range reads as
then is in dlfeat of nvmeinit id-ns: zeroes, with nvmetgt's volumes that free space.`,
		func(ctx context.Context, ns *host.Namespace, off, n int64) error { return ns.Discard(ctx, off, n) })
}

func newWriteZeroes() *cobra.Command {
	return rangeCommand("write-zeroes", "Fill a range of a namespace with zeroes",
		`write-zeroes fills a range of a namespace with zeroes, which it doesn't send, makes that
durable, and prints nothing.`,
		func(ctx context.Context, ns *host.Namespace, off, n int64) error {
			if err := ns.WriteZeroes(ctx, off, n, false); err != nil {
				return err
			}
			return ns.Flush(ctx)
		})
}

// rangeCommand returns a command on a range of a namespace that must be given explicitly: leaving it out never
// means all.
func rangeCommand(use, short, long string, do func(ctx context.Context, ns *host.Namespace, off, n int64) error) *cobra.Command {
	f := &copyFlags{}
	c := inspection{
		use: use, short: short, long: long, silent: true,
		example: "  nvmeinit " + use + " -t rdma -a 127.0.0.1 --offset 64MiB --length 8MiB\n" +
			"  nvmeinit " + use + " -t tcp -a 127.0.0.1 --nsid 2 --offset 0 --length 1GiB",
		runOnNS: func(c *cobra.Command, _ *connFlags, ns *host.Namespace) error {
			if err := f.inside(ns); err != nil {
				return err
			}
			return do(c.Context(), ns, int64(f.offset), int64(f.length))
		},
	}.command()
	c.Flags().Var(&f.offset, "offset", "where to begin, in bytes, as 64MiB")
	c.Flags().Var(&f.length, lengthFlag, "bytes of the range, as 8MiB")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if err := mustHave(c, "offset", lengthFlag); err != nil {
			return err
		}
		if f.length == 0 {
			return cli.Usage("--%s 0: want at least one block", lengthFlag)
		}
		return nil
	}
	return c
}
