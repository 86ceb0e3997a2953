package main

import (
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// longestLog bounds what get-log reads.
const longestLog = 64 << 20

func newGetLog() *cobra.Command {
	var p nvme.GetLogPage
	var length, offset cli.Size
	var lid, csi uint8
	var raw bool
	c := inspection{
		use: "get-log", short: "Show any log page as bytes",
		long: `get-log reads part of any log page, including those of vendors, and shows its bytes;
nvmeinit supported-log-pages lists them. Over fabrics most targets, including nvmetgt,
create a controller for each connection: logs of events begin with it.`,
		example: "  nvmeinit get-log -t rdma -a 127.0.0.1 --log-id 0x02 --log-len 512\n" +
			"  nvmeinit get-log -t tcp -a 127.0.0.1 --log-id 0x05 --log-len 4096 --raw-binary > effects.bin",
		silent: true,
		run: func(c *cobra.Command, _ *connFlags, s *session) error {
			p.LID, p.CSI, p.Offset = nvme.LID(lid), nvme.CSI(csi), uint64(offset)
			if !c.Flags().Changed("nsid") {
				p.NSID = nvme.NSIDAll
			}
			b := make([]byte, length)
			if err := s.ReadLog(c.Context(), p, b); err != nil {
				return err
			}
			return printBytes(c.OutOrStdout(), b, raw)
		},
	}.command()
	fl := c.Flags()
	fl.Uint8Var(&lid, "log-id", 0, "`number` of the log page, as 0x02")
	fl.Var(&length, "log-len", "bytes to read")
	fl.Var(&offset, "lpo", "where in the page to begin, in bytes (default 0)")
	fl.Uint32Var(&p.NSID, "nsid", 0, "`number` of the namespace, for logs that namespaces have (default all)")
	fl.Uint8Var(&p.LSP, "lsp", 0, "`number` that the page gives a meaning, 0 to 127")
	fl.Uint16Var(&p.LSI, "lsi", 0, "`number` of what the page is of, as an endurance group")
	fl.Uint8Var(&p.UUIDIndex, "uuid-index", 0, "`number` in the UUID list, 0 to 127")
	fl.Uint8Var(&csi, "csi", 0, "`number` of the command set")
	fl.BoolVar(&p.RAE, "rae", false, "retain the event that belongs to the page")
	fl.BoolVarP(&raw, "raw-binary", "b", false, "print the bytes themselves")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if err := mustHave(c, "log-id", "log-len"); err != nil {
			return err
		}
		switch {
		case length <= 0 || length%4 != 0 || length > longestLog:
			return cli.Usage("--log-len %d: want a multiple of 4, up to %s", length, blockdev.FormatSize(longestLog))
		case offset%4 != 0:
			return cli.Usage("--lpo %d: want a multiple of 4", offset)
		case p.LSP > 127 || p.UUIDIndex > 127:
			return cli.Usage("--lsp %d, --uuid-index %d: want 0 to 127", p.LSP, p.UUIDIndex)
		}
		return nil
	}
	return c
}
