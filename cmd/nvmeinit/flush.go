package main

import "github.com/spf13/cobra"

func newFlush() *cobra.Command {
	var nsid uint32
	c, _ := inspect("flush", "Make what was written to a namespace durable",
		"  nvmeinit flush -t rdma -a 127.0.0.1 --nsid 1",
		func(c *cobra.Command, f *connFlags, s *session) error {
			ns, err := s.Namespace(c.Context(), nsid)
			if err != nil {
				return err
			}
			return ns.Flush(c.Context())
		})
	c.Flags().Uint32Var(&nsid, "nsid", 1, "namespace")
	return c
}
