package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
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

func newVerify() *cobra.Command {
	return rangeCommand("verify", "Have the target check a range of a namespace",
		`verify has the target check that a range of a namespace can be read (Verify), without
sending it, and prints nothing. When it can't be read, verify says which block is the
first, if the target's error log does.`,
		func(ctx context.Context, ns *host.Namespace, off, n int64) error {
			return firstUnreadable(ctx, ns, ns.Verify(ctx, off, n))
		})
}

func newWriteUncor() *cobra.Command {
	return rangeCommand("write-uncor", "Mark a range of a namespace as uncorrectable",
		`write-uncor makes reads of a range of a namespace fail with a media error until it is
written (Write Uncorrectable), and prints nothing. What the range held is lost.`,
		func(ctx context.Context, ns *host.Namespace, off, n int64) error {
			return ns.WriteUncorrectable(ctx, off, n)
		})
}

func newCopy() *cobra.Command {
	var to cli.Size
	c := rangeCommand("copy", "Have the target copy a range of a namespace to another place in it",
		`copy has the target copy a range of a namespace to another place in it (Copy), so that
the data isn't sent, makes that durable, and prints nothing. The two places must not
overlap.`,
		func(ctx context.Context, ns *host.Namespace, off, n int64) error {
			if err := inside(ns, "to", int64(to), n); err != nil {
				return err
			}
			if off < int64(to)+n && int64(to) < off+n {
				return cli.Usage("--to %d: %d bytes there overlap those at --offset %d", to, n, off)
			}
			if err := ns.Copy(ctx, off, int64(to), n); err != nil {
				return firstUnreadable(ctx, ns, err)
			}
			return ns.Flush(ctx)
		})
	c.Example = "  nvmeinit copy -t rdma -a 127.0.0.1 --offset 64MiB --length 8MiB --to 128MiB\n" +
		"  nvmeinit copy -t tcp -a 127.0.0.1 --nsid 2 --offset 0 --length 1GiB --to 1GiB"
	c.Flags().Var(&to, "to", "where to copy it, in bytes, as 128MiB")
	ranged := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if err := ranged(c, args); err != nil {
			return err
		}
		return mustHave(c, "to")
	}
	return c
}

// firstUnreadable says which block couldn't be read by a command that failed with err, if the controller's error log does.
func firstUnreadable(ctx context.Context, ns *host.Namespace, err error) error {
	if !errors.Is(err, nvme.StatusUnrecoveredRead) {
		return err
	}
	if block, ok := blockInError(ctx, ns, err); ok {
		return cli.Say(err, "%v; the first is block %d", err, block)
	}
	return err
}

// rangeCommand returns a command on a range of a namespace that must be given explicitly: leaving it out never
// means all.
func rangeCommand(use, short, long string, do func(ctx context.Context, ns *host.Namespace, off, n int64) error) *cobra.Command {
	var offset, length cli.Size
	c := inspection{
		use: use, short: short, long: long, silent: true,
		example: "  nvmeinit " + use + " -t rdma -a 127.0.0.1 --offset 64MiB --length 8MiB\n" +
			"  nvmeinit " + use + " -t tcp -a 127.0.0.1 --nsid 2 --offset 0 --length 1GiB",
		runOnNS: func(c *cobra.Command, _ *connFlags, ns *host.Namespace) error {
			if err := inside(ns, "offset", int64(offset), int64(length)); err != nil {
				return err
			}
			return do(c.Context(), ns, int64(offset), int64(length))
		},
	}.command()
	c.Flags().Var(&offset, "offset", "where to begin, in bytes, as 64MiB")
	c.Flags().Var(&length, lengthFlag, "bytes of the range, as 8MiB")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if err := mustHave(c, "offset", lengthFlag); err != nil {
			return err
		}
		if length == 0 {
			return cli.Usage("--%s 0: want at least one block", lengthFlag)
		}
		return nil
	}
	return c
}
