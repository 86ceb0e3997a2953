package main

import "github.com/spf13/cobra"

func newFlush() *cobra.Command {
	return inspection{
		use: "flush", short: "Make what was written to a namespace durable",
		long: `flush makes everything durable that was written to a namespace before, by whomever;
it prints nothing.`,
		example: "  nvmeinit flush -t rdma -a 127.0.0.1 --nsid 1",
		nsid:    true,
		silent:  true,
		run: func(c *cobra.Command, _ *connFlags, s *session, nsid uint32) error {
			ns, err := s.namespace(c.Context(), nsid)
			if err != nil {
				return err
			}
			return ns.Flush(c.Context())
		},
	}.command()
}
