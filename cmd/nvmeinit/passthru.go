package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// rawFlags holds the fields of a command as given by the user.
type rawFlags struct {
	opcode uint8
	nsid   uint32
	dwords [16]uint32
	length cli.Size
	input  string
	read   bool // as nvme-cli wants it said; here it must agree with the opcode
	write  bool
	raw    bool
}

// rawDwords are the dwords that no other flag, and no transport, sets.
var rawDwords = []int{2, 3, 10, 11, 12, 13, 14, 15}

func newAdminPassthru() *cobra.Command {
	return newPassthru("admin-passthru", "Send any admin command",
		`admin-passthru sends an admin command made of the fields given, and shows its result and
data. The last two bits of the opcode say whether data moves, and which way.`,
		"  nvmeinit admin-passthru -t rdma -a 127.0.0.1 --opcode 0x06 --cdw10 1 --data-len 4096\n"+
			"  nvmeinit admin-passthru -t tcp -a 127.0.0.1 --opcode 0x0a --cdw10 7",
		func(s *session) *host.Queue { return s.Admin() })
}

func newIOPassthru() *cobra.Command {
	return newPassthru("io-passthru", "Send any I/O command",
		`io-passthru sends an I/O command made of the fields given, and shows its result and data.
The last two bits of the opcode say whether data moves, and which way. nvmeinit doesn't
check what the command does to the namespace.`,
		"  nvmeinit io-passthru -t rdma -a 127.0.0.1 --opcode 0x02 --nsid 1 --cdw10 0 --data-len 4096\n"+
			"  nvmeinit io-passthru -t tcp -a 127.0.0.1 --opcode 0x01 --nsid 1 --data-len 4096 --input-file block.bin",
		func(s *session) *host.Queue {
			if qs := s.Queues(); len(qs) > 0 {
				return qs[0]
			}
			return nil
		})
}

func newPassthru(use, short, long, example string, queue func(*session) *host.Queue) *cobra.Command {
	f := &rawFlags{}
	c := inspection{
		use: use, short: short, long: long, example: example, silent: true,
		run: func(c *cobra.Command, _ *connFlags, s *session) error {
			if most := s.Limits().MaxTransfer; int64(f.length) > int64(most) {
				return cli.Usage("--data-len %d: the controller takes at most %s a command (MDTS)", f.length, blockdev.FormatSize(int64(most)))
			}
			q := queue(s)
			if q == nil {
				return cli.Usage("-n %s: a discovery controller has no I/O queue", s.Config().SubNQN)
			}
			r, err := f.request(c)
			if err != nil {
				return err
			}
			if err := q.Do(c.Context(), r); err != nil {
				return err
			}
			return f.print(c, r)
		},
	}.command()
	f.add(c.Flags())
	c.PreRunE = func(c *cobra.Command, _ []string) error { return f.check(c) }
	return c
}

func (f *rawFlags) add(fl *pflag.FlagSet) {
	fl.Uint8Var(&f.opcode, "opcode", 0, "`number` of the command, as 0x02")
	fl.Uint32Var(&f.nsid, "nsid", 0, "`number` of the namespace")
	for _, i := range rawDwords {
		fl.Uint32Var(&f.dwords[i], fmt.Sprintf("cdw%d", i), 0, fmt.Sprintf("`value` of dword %d", i))
	}
	fl.Var(&f.length, "data-len", "bytes of data to transfer (default 0)")
	fl.BoolVar(&f.read, "read", false, "the command reads data; its opcode must say so too")
	fl.BoolVar(&f.write, "write", false, "the command sends data; its opcode must say so too")
	fl.StringVar(&f.input, "input-file", "-", "`FILE` with the data to send; - for standard input")
	fl.BoolVarP(&f.raw, "raw-binary", "b", false, "print nothing but the data that it reads, as raw bytes")
}

// check rejects what can't be sent.
func (f *rawFlags) check(c *cobra.Command) error {
	if err := mustHave(c, "opcode"); err != nil {
		return err
	}
	direction := f.command().Direction()
	switch {
	case nvme.Opcode(f.opcode) == nvme.OpFabrics:
		return cli.Usage("--opcode %#02x: Fabrics commands are the connection's own; nvmeinit show-regs reads properties", f.opcode)
	case direction == nvme.BothWays:
		return cli.Usage("--opcode %#02x moves data both ways, which Fabrics doesn't", f.opcode)
	case f.read && direction != nvme.CtrlToHost:
		return cli.Usage("--read: opcode %#02x brings no data (its last two bits aren't 10)", f.opcode)
	case f.write && direction != nvme.HostToCtrl:
		return cli.Usage("--write: opcode %#02x sends no data (its last two bits aren't 01)", f.opcode)
	case direction == nvme.NoData && f.length != 0:
		return cli.Usage("--data-len %d: opcode %#02x moves no data (its last two bits are 0)", f.length, f.opcode)
	case direction != nvme.HostToCtrl && c.Flags().Changed("input-file"):
		return cli.Usage("--input-file: opcode %#02x sends no data (its last two bits aren't 01)", f.opcode)
	}
	return nil
}

func (f *rawFlags) command() *nvme.Command {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.Opcode(f.opcode))
	cmd.SetNSID(f.nsid)
	for _, i := range rawDwords {
		cmd.SetCDW(i, f.dwords[i])
	}
	return &cmd
}

// request returns the command with its data.
func (f *rawFlags) request(c *cobra.Command) (*host.Request, error) {
	r := &host.Request{Cmd: *f.command(), Data: make([]byte, f.length)}
	if f.length == 0 || r.Cmd.Direction() != nvme.HostToCtrl {
		return r, nil
	}
	in, err := openInput(c.Context(), "--input-file", f.input, c.InOrStdin())
	if err != nil {
		return nil, err
	}
	defer in.close()
	n, err := io.ReadFull(in, r.Data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, cli.Usage("--input-file %s holds %d bytes, --data-len is %d", in.name, n, f.length)
	}
	return r, err
}

// print shows the response.
func (f *rawFlags) print(c *cobra.Command, r *host.Request) error {
	w := c.OutOrStdout()
	if !f.raw {
		fmt.Fprintf(w, "result: 0x%08x\n", r.CQE.Result())
	}
	if r.Cmd.Direction() != nvme.CtrlToHost {
		return nil
	}
	return printBytes(w, r.Data, f.raw)
}
