package main

import (
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

func newFlush() *cobra.Command {
	return inspection{
		use: "flush", short: "Make what was written to a namespace durable",
		long: `flush makes everything durable that was written to a namespace before, by whomever;
it prints nothing.`,
		example: "  nvmeinit flush -t rdma -a 127.0.0.1 --nsid 1",
		silent:  true,
		runOnNS: func(c *cobra.Command, _ *connFlags, ns *host.Namespace) error {
			return ns.Flush(c.Context())
		},
	}.command()
}
